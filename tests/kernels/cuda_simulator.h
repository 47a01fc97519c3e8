// device.cuh on a CPU: every thread of every block is a fiber, and one scheduler runs them all, in an order and at speeds
// drawn anew for each seed. What a kernel does wrong (a race, a wait for something that never comes, an index out of its buffer) comes
// out the same way each time.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#define DEVICE inline
#define KERNEL extern "C" void
#define GIVEN const

struct alignas(16) Words {
    uint32_t x, y, z, w;
};
struct alignas(8) Pair {
    float x, y;
};

namespace simulator {

constexpr int LANES = 32, BLOCK_THREADS = 256;

struct Meeting {  // of threads that wait for each other
    int arrived = 0;
    unsigned round = 0;
};
struct Deposit {
    uint32_t a[4], b[2];
    bool flag;
    float number;
};
struct Warp {
    Meeting meeting;
    Deposit lanes[LANES];
};
struct Block {
    Meeting meeting;
    Warp warps[BLOCK_THREADS / LANES];
    std::vector<uint8_t> memory;
};
struct Cluster {
    Meeting meeting;
};
struct Fiber {
    ucontext_t context;
    std::unique_ptr<uint8_t[]> stack;
    int thread, block;
    bool done = false;
};

inline std::vector<Fiber> fibers;
inline std::vector<Block> blocks;
inline std::vector<Cluster> clusters;
inline int cluster_size = 1;  // in blocks
inline ucontext_t scheduler;
inline Fiber* now;
inline uint64_t progress, failures;  // meetings held and words stored: without any, everyone waits for ever

inline void yield() { swapcontext(&now->context, &scheduler); }

inline void meet(Meeting& meeting, int size) {
    const unsigned round = meeting.round;
    if (++meeting.arrived == size) {
        meeting.arrived = 0;
        meeting.round++;
        progress++;
        return;
    }
    while (meeting.round == round) yield();
}
inline Warp& warp() { return blocks[now->block].warps[now->thread / LANES]; }
inline Deposit& deposit() { return warp().lanes[now->thread % LANES]; }

inline float from_half(uint16_t bits) {
    _Float16 value;
    memcpy(&value, &bits, 2);
    return static_cast<float>(value);
}
inline float from_bfloat(uint16_t bits) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}
inline uint16_t to_half(float value) {
    if (std::isnan(value)) return 0x7fff;
    const _Float16 narrow = static_cast<_Float16>(value);
    uint16_t bits;
    memcpy(&bits, &narrow, 2);
    return bits;
}
inline uint16_t to_bfloat(float value) {
    if (std::isnan(value)) return 0x7fff;
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// m16n8k16 as its manual lays it out: lane (r, q) holds rows r, r + 8 and columns 2q, 2q + 1, 2q + 8, 2q + 9 of a,
// rows 2q, 2q + 1, 2q + 8, 2q + 9 of column r of b, and rows r, r + 8 of columns 2q, 2q + 1 of the sums.
template <float (*WIDEN)(uint16_t)>
void multiply(float (&sums)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    deposit() = {{a0, a1, a2, a3}, {b0, b1}, false, 0.0f};
    meet(warp().meeting, LANES);
    const Warp& all = warp();
    const int lane = now->thread % LANES, r = lane / 4, q = lane % 4;
    for (int e = 0; e < 4; e++) {
        const int row = r + 8 * (e / 2), column = 2 * q + e % 2;
        for (int k = 0; k < 16; k++) {
            const int holder = k % 8 / 2, upper = k / 8, half = k % 2;
            const uint32_t a = all.lanes[row % 8 * 4 + holder].a[2 * upper + row / 8];
            const uint32_t b = all.lanes[column * 4 + holder].b[upper];
            sums[e] += WIDEN(a >> 16 * half & 0xffff) * WIDEN(b >> 16 * half & 0xffff);
        }
    }
    meet(warp().meeting, LANES);
}

}  // namespace simulator

inline int thread_index() { return simulator::now->thread; }
inline int block_index() { return simulator::now->block; }
inline void sync_block() { simulator::meet(simulator::blocks[block_index()].meeting, simulator::BLOCK_THREADS); }
inline uint8_t* shared_memory() { return simulator::blocks[block_index()].memory.data(); }
inline void rest() {}
inline void give_up() {
    simulator::failures++;
    simulator::now->done = true;
    simulator::yield();
}
inline bool any_lane(bool flag) {
    simulator::deposit().flag = flag;
    simulator::meet(simulator::warp().meeting, simulator::LANES);
    bool any = false;
    for (const auto& lane : simulator::warp().lanes) any = any || lane.flag;
    simulator::meet(simulator::warp().meeting, simulator::LANES);
    return any;
}
inline Words load_exchanged(const void* address) {
    simulator::yield();
    return *static_cast<const Words*>(address);
}
inline void store_exchanged(void* address, uint32_t word) {
    simulator::yield();
    *static_cast<uint32_t*>(address) = word;
    simulator::progress++;
}
inline float from_lane_across(float number, int bits) {
    simulator::deposit().number = number;
    simulator::meet(simulator::warp().meeting, simulator::LANES);
    const float found = simulator::warp().lanes[(thread_index() % simulator::LANES) ^ bits].number;
    simulator::meet(simulator::warp().meeting, simulator::LANES);
    return found;
}
inline uint32_t bits_of(float number) {
    uint32_t bits;
    memcpy(&bits, &number, 4);
    return bits;
}
inline float float_of(uint32_t bits) {
    float number;
    memcpy(&number, &bits, 4);
    return number;
}
inline void sync_cluster() {
    const int size = simulator::cluster_size;
    simulator::meet(simulator::clusters[block_index() / size].meeting, size * simulator::BLOCK_THREADS);
}
inline uint8_t* near(int block, const void* mine) {
    const int first = block_index() / simulator::cluster_size * simulator::cluster_size;
    if (block >= simulator::cluster_size) give_up();
    return simulator::blocks[first + block].memory.data() + (static_cast<const uint8_t*>(mine) - shared_memory());
}
inline void store_near(int block, void* mine, uint32_t word) {
    simulator::yield();
    memcpy(near(block, mine), &word, 4);
    simulator::progress++;
}
inline void store_near(int block, void* mine, Words words) {
    const uint32_t each[4] = {words.x, words.y, words.z, words.w};
    for (int i = 0; i < 4; i++) store_near(block, static_cast<uint32_t*>(mine) + i, each[i]);
}
inline Words load_near(const void* mine) {
    simulator::yield();
    return *static_cast<const Words*>(mine);
}
inline Pair load_near_pair(const void* mine) {
    simulator::yield();
    return *static_cast<const Pair*>(mine);
}

struct Half {
    static uint32_t pack(float low, float high) {
        return simulator::to_half(low) | static_cast<uint32_t>(simulator::to_half(high)) << 16;
    }
    static Pair unpack(uint32_t word) { return {simulator::from_half(word & 0xffff), simulator::from_half(word >> 16)}; }
    static constexpr auto multiply = simulator::multiply<simulator::from_half>;
};
struct BFloat {
    static uint32_t pack(float low, float high) {
        return simulator::to_bfloat(low) | static_cast<uint32_t>(simulator::to_bfloat(high)) << 16;
    }
    static Pair unpack(uint32_t word) {
        return {simulator::from_bfloat(word & 0xffff), simulator::from_bfloat(word >> 16)};
    }
    static constexpr auto multiply = simulator::multiply<simulator::from_bfloat>;
};

inline float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
inline float tanh_of(float x) { return std::tanh(x); }

struct Arguments;
namespace simulator {
inline const Arguments* arguments;
inline void (*kernel)(Arguments);
inline void run_fiber();
}  // namespace simulator
