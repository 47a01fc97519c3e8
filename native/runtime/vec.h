// Vectors of floats in the compiler's own vector types: one source for AVX-512, AVX2, SSE and NEON.
//
// Everything here lives in a namespace named for the instruction set (UNROLLED_NAMESPACE), since the same source is
// compiled several times with different flags: no two builds may share a symbol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
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

// The lanes of two vectors in turn, a[0], b[0], a[1], …: of their lower halves, or of the upper ones.
template <bool UPPER, size_t... LANE>
[[gnu::always_inline]] static inline Vec in_turn(Vec a, Vec b, std::index_sequence<LANE...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, (LANE / 2 + LANE % 2 * kLanes + UPPER * kLanes / 2)...);
#else
  return __builtin_shuffle(a, b, IntVec{static_cast<int32_t>(LANE / 2 + LANE % 2 * kLanes + UPPER * kLanes / 2)...});
#endif
}

// A square of kLanes × kLanes floats, rows for columns: perfect shuffles of its halves.
[[gnu::always_inline]] static inline void transpose(Vec (&square)[kLanes]) {
  constexpr auto kAll = std::make_index_sequence<kLanes>();
#pragma GCC unroll 4
  for (int stage = 1; stage < kLanes; stage *= 2) {
    Vec next[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = in_turn<false>(square[i], square[i + kLanes / 2], kAll);
      next[2 * i + 1] = in_turn<true>(square[i], square[i + kLanes / 2], kAll);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) square[i] = next[i];
  }
}

constexpr int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }
constexpr int ceil_div(int n, int by) { return (n + by - 1) / by; }

}  // namespace unrolled::UNROLLED_NAMESPACE
