// The GPU instructions that the kernels use. tests/kernels/cuda_simulator.h has the same functions for a CPU.
#pragma once

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

#include <constants.h>

#define DEVICE __device__ __forceinline__
#ifndef BLOCKS_TOGETHER
#define BLOCKS_TOGETHER 1  // on a multiprocessor: the more, the fewer registers a thread has
#endif
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_TOGETHER)
#define KERNEL_ARGUMENT const __grid_constant__

struct alignas(16) Words {
    uint32_t x, y, z, w;
};
struct alignas(8) Pair {
    float x, y;
};

DEVICE int thread_index() { return threadIdx.x; }
DEVICE int block_index() { return blockIdx.x; }
DEVICE void sync_block() { __syncthreads(); }
DEVICE void sync_warp() { __syncwarp(); }
DEVICE bool any_lane(bool flag) { return __any_sync(0xffffffffu, flag); }
// A bit for each lane of the warp.
DEVICE uint32_t ballot(bool flag) { return __ballot_sync(0xffffffffu, flag); }
DEVICE int set_bits(uint32_t word) { return __popc(word); }
DEVICE void trap() { __trap(); }
// The next place in a list in shared memory; threads get places in any order.
DEVICE int claim(int* count) { return atomicAdd(count, 1); }
// Pause between two polls: failed polls compete with writes.
DEVICE void back_off() { __nanosleep(64); }

DEVICE uint8_t* shared_memory() {
    extern __shared__ Words shared[];
    return reinterpret_cast<uint8_t*>(shared);
}

// Words that other blocks write while this one polls them, through the second-level cache. Each 32-bit word is atomic;
// no other access is ordered by them, and none needs to be.
DEVICE Words load_exchanged(const void* address) {
    Words words;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(address)
                 : "memory");
    return words;
}
DEVICE void store_exchanged(void* address, uint32_t word) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(word) : "memory");
}

// The number of the lane whose index differs in these bits.
DEVICE float shuffle_xor(float number, int bits) { return __shfl_xor_sync(0xffffffffu, number, bits); }
DEVICE int shuffle_xor(int number, int bits) { return __shfl_xor_sync(0xffffffffu, number, bits); }
// The number of the lane before; lane 0 gets its own.
DEVICE float shuffle_up(float number) { return __shfl_up_sync(0xffffffffu, number, 1); }
DEVICE int shuffle_up(int number) { return __shfl_up_sync(0xffffffffu, number, 1); }
DEVICE double shuffle_up(double number) { return __shfl_up_sync(0xffffffffu, number, 1); }
DEVICE uint32_t bits_of(float number) { return __float_as_uint(number); }
DEVICE float float_of(uint32_t bits) { return __uint_as_float(bits); }

// A number that no thread writes, needed later: the load is issued here, and not where the number is used.
DEVICE float load_ahead(const float* address) {
    float number;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(number) : "l"(address));
    return number;
}

// Words in the shared memory of the blocks of a cluster: one block writes them, another polls them.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
DEVICE void sync_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
DEVICE uint32_t cluster_address(int block, const void* mine) {
    uint32_t there;
    const uint32_t here = static_cast<uint32_t>(__cvta_generic_to_shared(mine));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(block));
    return there;
}
// Writes to the address in block `block` that corresponds to `mine` in this block.
DEVICE void store_cluster(int block, void* mine, uint32_t word) {
    asm volatile("st.relaxed.cluster.shared::cluster.u32 [%0], %1;" ::"r"(cluster_address(block, mine)), "r"(word) : "memory");
}
DEVICE void store_cluster(int block, void* mine, Words words) {
    asm volatile("st.relaxed.cluster.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(cluster_address(block, mine)),
                 "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w)
                 : "memory");
}
DEVICE Words load_cluster(const void* mine) {
    Words words;
    const uint32_t here = static_cast<uint32_t>(__cvta_generic_to_shared(mine));
    asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "r"(here)
                 : "memory");
    return words;
}
DEVICE Pair load_cluster_pair(const void* mine) {
    Pair pair;
    const uint32_t here = static_cast<uint32_t>(__cvta_generic_to_shared(mine));
    asm volatile("ld.volatile.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(here) : "memory");
    return pair;
}
#endif

// 16-bit numbers, two to a word. Rounding turns every NaN into 0x7fff, never into 0xffff.
struct Half {
    static DEVICE uint32_t pack(float low, float high) {
        uint32_t word;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
        return word;
    }
    static DEVICE Pair unpack(uint32_t word) {
        Pair pair;
        asm("{ .reg .f16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
            : "=f"(pair.x), "=f"(pair.y)
            : "r"(word));
        return pair;
    }
    // sums[16 x 8] += a[16 x 16] b[16 x 8]
    static DEVICE void multiply(float (&sums)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                uint32_t b1) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
};

struct BFloat {
    static DEVICE uint32_t pack(float low, float high) {
        uint32_t word;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
        return word;
    }
    static DEVICE Pair unpack(uint32_t word) {
        return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
    }
    static DEVICE void multiply(float (&sums)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                uint32_t b1) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
};

// The hardware's tanh. Its error of up to 5e-4 disappears in the rounding to 16 bits.
DEVICE float tanh_of(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float sigmoid(float x) { return fmaf(0.5f, tanh_of(0.5f * x), 0.5f); }
DEVICE float exp_of(float x) { return __expf(x); }
