// Vectors of floats in the compiler's own vector types: one source for AVX-512, AVX2, SSE and NEON.
//
// Everything here lives in a namespace named for the instruction set (UNROLLED_NAMESPACE), since the same source is
// compiled several times with different flags: no two builds may share a symbol.
#pragma once

#include <cstddef>
#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace unrolled::UNROLLED_NAMESPACE {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kRegisters = 32;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
constexpr int kRegisters = 16;
#elif defined(__aarch64__)
constexpr int kLanes = 4;
constexpr int kRegisters = 32;
#else
constexpr int kLanes = 4;
constexpr int kRegisters = 16;
#endif

typedef float Vec __attribute__((vector_size(kLanes * sizeof(float))));
typedef int32_t IntVec __attribute__((vector_size(kLanes * sizeof(int32_t))));

// The same at any address. As floats, not as bytes: a store then tells the compiler that no pointer has changed.
typedef float LooseVec __attribute__((vector_size(kLanes * sizeof(float)), aligned(alignof(float))));

static inline Vec load(const float* from) { return *reinterpret_cast<const LooseVec*>(from); }
static inline void store(float* to, Vec v) { *reinterpret_cast<LooseVec*>(to) = v; }

// Fetches a cache line that will be read soon; any address is allowed.
static inline void prefetch(const float* from) { __builtin_prefetch(from); }

// The first `count` lanes; the others are zero and are never written back.
[[gnu::always_inline]] static inline Vec load(const float* from, int count) {
  if (count >= kLanes) return load(from);
  Vec v = {};
  for (int lane = 0; lane < kLanes - 1; ++lane)
    if (lane < count) v[lane] = from[lane];
  return v;
}

[[gnu::always_inline]] static inline void store(float* to, Vec v, int count) {
  if (count >= kLanes) return store(to, v);
  for (int lane = 0; lane < kLanes - 1; ++lane)
    if (lane < count) to[lane] = v[lane];
}

static inline Vec splat(float x) { return x - Vec{}; }

static inline float sum(Vec v) {
  float total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += v[lane];
  return total;
}

static inline float maximum(Vec v) {
  float most = v[0];
  for (int lane = 1; lane < kLanes; ++lane) most = v[lane] > most ? v[lane] : most;
  return most;
}

// A square of kLanes × kLanes floats, rows for columns: perfect shuffles of its halves.
[[gnu::always_inline]] static inline void transpose(Vec (&square)[kLanes]) {
#if defined(__clang__)  // has no shuffle by a variable
  for (int row = 0; row < kLanes; ++row)
    for (int column = 0; column < row; ++column) {
      const float kept = square[row][column];
      square[row][column] = square[column][row];
      square[column][row] = kept;
    }
#else
  IntVec low, high;
  for (int lane = 0; lane < kLanes; ++lane) {
    low[lane] = lane / 2 + lane % 2 * kLanes;
    high[lane] = low[lane] + kLanes / 2;
  }
#pragma GCC unroll 4
  for (int stage = 1; stage < kLanes; stage *= 2) {
    Vec next[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = __builtin_shuffle(square[i], square[i + kLanes / 2], low);
      next[2 * i + 1] = __builtin_shuffle(square[i], square[i + kLanes / 2], high);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) square[i] = next[i];
  }
#endif
}

constexpr int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }
constexpr int ceil_div(int n, int by) { return (n + by - 1) / by; }

}  // namespace unrolled::UNROLLED_NAMESPACE
