// Vectors of floats in the compiler's own vector types: one source for AVX-512, AVX2, SSE and NEON.
//
// Everything here lives in a namespace named for the instruction set (UNROLLED_NAMESPACE), since the same source is
// compiled several times with different flags: no two builds may share a symbol.
#pragma once

#include <cstddef>
#include <cstdint>

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

static inline Vec load(const float* from) {
  Vec v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}

static inline void store(float* to, Vec v) { __builtin_memcpy(to, &v, sizeof v); }

// The first `count` lanes; the others are zero and are never written back.
static inline Vec load(const float* from, int count) {
  if (count >= kLanes) return load(from);
  Vec v = {};
  for (int lane = 0; lane < count; ++lane) v[lane] = from[lane];
  return v;
}

static inline void store(float* to, Vec v, int count) {
  if (count >= kLanes) return store(to, v);
  for (int lane = 0; lane < count; ++lane) to[lane] = v[lane];
}

static inline Vec splat(float x) { return x - Vec{}; }

static inline float sum(Vec v) {
  float total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += v[lane];
  return total;
}

constexpr int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }
constexpr int ceil_div(int n, int by) { return (n + by - 1) / by; }

}  // namespace unrolled::UNROLLED_NAMESPACE
