// bfloat16, the upper half of a float32, in vectors.
#pragma once

#include "runtime/vec.h"

namespace unrolled::UNROLLED_NAMESPACE {

using Bfloat = uint16_t;
typedef Bfloat BfloatVec __attribute__((vector_size(kLanes * sizeof(Bfloat)), aligned(alignof(Bfloat))));
typedef uint32_t BitVec __attribute__((vector_size(kLanes * sizeof(uint32_t))));

[[gnu::always_inline]] static inline Vec load_bfloat(const Bfloat* from) {
  const BitVec bits = __builtin_convertvector(*reinterpret_cast<const BfloatVec*>(from), BitVec) << 16;
  Vec v;
  __builtin_memcpy(&v, &bits, sizeof v);
  return v;
}

// Bits whose upper half is the nearest bfloat16, ties to even; a NaN stays a NaN.
[[gnu::always_inline]] static inline BitVec rounded(Vec v) {
  BitVec bits;
  __builtin_memcpy(&bits, &v, sizeof bits);
  const BitVec near = bits + 0x7fff + ((bits >> 16) & 1);
  return v == v ? near : bits | 0x400000;
}

[[gnu::always_inline]] static inline void store_bfloat(Bfloat* to, Vec v) {
  *reinterpret_cast<BfloatVec*>(to) = __builtin_convertvector(rounded(v) >> 16, BfloatVec);
}

static inline float from_bfloat(Bfloat upper) {
  const uint32_t bits = static_cast<uint32_t>(upper) << 16;
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

static inline Bfloat to_bfloat(float x) { return static_cast<Bfloat>(rounded(splat(x))[0] >> 16); }

}  // namespace unrolled::UNROLLED_NAMESPACE
