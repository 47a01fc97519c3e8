// device.cuh for a CPU: every thread of every block is a fiber, and one scheduler runs them all, in an order and at speeds
// that depend on a seed. A mistake of a kernel (a race, a poll that never ends, an index past its buffer) is reproducible.
#pragma once

#include <cstdint>
#include <cstring>

#include <constants.h>

// Of <cmath>, which would take a fifth of the time that a kernel takes to compile.
extern "C" {
float expf(float) noexcept;
float tanhf(float) noexcept;
float fminf(float, float) noexcept;
float fmaxf(float, float) noexcept;
float fmaf(float, float, float) noexcept;
float log2f(float) noexcept;
float sqrtf(float) noexcept;
double exp(double) noexcept;
}

#define DEVICE inline
#define KERNEL extern "C" void
#define KERNEL_ARGUMENT const

struct alignas(16) Words {
    uint32_t x, y, z, w;
};
struct alignas(8) Pair {
    float x, y;
};

namespace simulator {

struct Barrier {
    int arrived = 0;
    unsigned round = 0;
};
struct Exchanged {
    uint32_t a[4], b[2];
    bool flag;
    double number;
};
struct Warp {
    Barrier barrier;
    Exchanged lanes[LANES];
};
struct Block {
    Barrier barrier;
    Warp warps[THREADS / LANES];
    uint8_t* memory = nullptr;
};
struct Thread {
    int thread, block;
    bool done = false;
    const Barrier* waits = nullptr;  // at which it stands, in the barrier's round
    unsigned round = 0;
};

// Of cuda_simulator.cpp, which is compiled once: this header is compiled with every kernel.
extern Block* blocks;
extern Barrier* clusters;
extern int cluster_size;  // in blocks
extern Thread* now;
extern uint64_t progress, failures;  // barriers passed and words stored: without any, all threads wait for ever
void yield();

inline void wait_at(Barrier& barrier, int size) {
    if (++barrier.arrived == size) {
        barrier.arrived = 0;
        barrier.round++;
        progress++;
        return;
    }
    now->waits = &barrier;
    now->round = barrier.round;
    yield();  // until the round is over
}
inline Warp& warp() { return blocks[now->block].warps[now->thread / LANES]; }
inline Exchanged& exchanged() { return warp().lanes[now->thread % LANES]; }

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
    if (__builtin_isnan(value)) return 0x7fff;
    const _Float16 narrow = static_cast<_Float16>(value);
    uint16_t bits;
    memcpy(&bits, &narrow, 2);
    return bits;
}
inline uint16_t to_bfloat(float value) {
    if (__builtin_isnan(value)) return 0x7fff;
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// m16n8k16 with the layout of the PTX manual: lane (r, q) holds rows r, r + 8 and columns 2q, 2q + 1, 2q + 8, 2q + 9 of a,
// rows 2q, 2q + 1, 2q + 8, 2q + 9 of column r of b, and rows r, r + 8 of columns 2q, 2q + 1 of the sums.
template <float (*WIDEN)(uint16_t)>
void multiply(float (&sums)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    exchanged() = {{a0, a1, a2, a3}, {b0, b1}, false, 0.0};
    wait_at(warp().barrier, LANES);
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
    wait_at(warp().barrier, LANES);
}

}  // namespace simulator

inline int thread_index() { return simulator::now->thread; }
inline int block_index() { return simulator::now->block; }
inline void sync_block() { simulator::wait_at(simulator::blocks[block_index()].barrier, THREADS); }
inline void sync_warp() { simulator::wait_at(simulator::warp().barrier, LANES); }
inline uint8_t* shared_memory() { return simulator::blocks[block_index()].memory; }
inline void back_off() {}
inline int claim(int* count) {
    simulator::yield();
    return (*count)++;
}
inline void trap() {
    simulator::failures++;
    simulator::now->done = true;
    simulator::yield();
}
inline bool any_lane(bool flag) {
    simulator::exchanged().flag = flag;
    simulator::wait_at(simulator::warp().barrier, LANES);
    bool any = false;
    for (const auto& lane : simulator::warp().lanes) any = any || lane.flag;
    simulator::wait_at(simulator::warp().barrier, LANES);
    return any;
}
inline uint32_t ballot(bool flag) {
    simulator::exchanged().flag = flag;
    simulator::wait_at(simulator::warp().barrier, LANES);
    uint32_t word = 0;
    for (int lane = 0; lane < LANES; lane++) word |= static_cast<uint32_t>(simulator::warp().lanes[lane].flag) << lane;
    simulator::wait_at(simulator::warp().barrier, LANES);
    return word;
}
inline int set_bits(uint32_t word) { return __builtin_popcount(word); }
inline Words load_exchanged(const void* address) {
    simulator::yield();
    return *static_cast<const Words*>(address);
}
inline void store_exchanged(void* address, uint32_t word) {
    simulator::yield();
    *static_cast<uint32_t*>(address) = word;
    simulator::progress++;
}
template <typename NUMBER>
NUMBER shuffle(NUMBER number, int from) {
    simulator::exchanged().number = number;
    simulator::wait_at(simulator::warp().barrier, LANES);
    const NUMBER found = static_cast<NUMBER>(simulator::warp().lanes[from].number);
    simulator::wait_at(simulator::warp().barrier, LANES);
    return found;
}
template <typename NUMBER>
NUMBER shuffle_xor(NUMBER number, int bits) {
    return shuffle(number, (thread_index() % LANES) ^ bits);
}
template <typename NUMBER>
NUMBER shuffle_up(NUMBER number) {
    const int lane = thread_index() % LANES;
    return shuffle(number, lane == 0 ? 0 : lane - 1);
}
inline float load_ahead(const float* address) { return *address; }
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
    simulator::wait_at(simulator::clusters[block_index() / size], size * THREADS);
}
inline uint8_t* cluster_address(int block, const void* mine) {
    const int first = block_index() / simulator::cluster_size * simulator::cluster_size;
    if (block >= simulator::cluster_size) trap();
    return simulator::blocks[first + block].memory + (static_cast<const uint8_t*>(mine) - shared_memory());
}
inline void store_cluster(int block, void* mine, uint32_t word) {
    simulator::yield();
    memcpy(cluster_address(block, mine), &word, 4);
    simulator::progress++;
}
inline void store_cluster(int block, void* mine, Words words) {
    const uint32_t each[4] = {words.x, words.y, words.z, words.w};
    for (int i = 0; i < 4; i++) store_cluster(block, static_cast<uint32_t*>(mine) + i, each[i]);
}
inline Words load_cluster(const void* mine) {
    simulator::yield();
    return *static_cast<const Words*>(mine);
}
inline Pair load_cluster_pair(const void* mine) {
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

inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
inline float tanh_of(float x) { return tanhf(x); }
inline float exp_of(float x) { return expf(x); }
