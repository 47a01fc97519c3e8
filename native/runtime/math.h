// Exponential, sigmoid and tanh on vectors, within a few units in the last place of float32; a NaN stays a NaN.
#pragma once

#include "runtime/vec.h"

namespace unrolled::UNROLLED_NAMESPACE {

// A NaN stays one: the instructions give their second operand where either is.
[[gnu::always_inline]] static inline Vec clamp(Vec x, float low, float high) {
#if defined(__AVX512F__)
  return _mm512_min_ps(splat(high), _mm512_max_ps(splat(low), x));
#elif defined(__AVX2__)
  return _mm256_min_ps(splat(high), _mm256_max_ps(splat(low), x));
#elif defined(__SSE2__)
  return _mm_min_ps(splat(high), _mm_max_ps(splat(low), x));
#elif defined(__aarch64__)  // a NaN among its operands is the result
  return (Vec)vminq_f32((float32x4_t)splat(high), vmaxq_f32((float32x4_t)splat(low), (float32x4_t)x));
#else
  x = x < splat(low) ? splat(low) : x;
  return x > splat(high) ? splat(high) : x;
#endif
}

// 2^n·e^r with x = r + n·ln 2, |r| ≤ ln 2 / 2; the polynomial is within 4e-9 of e^r, relatively. Below -87 it stays e^-87.
[[gnu::always_inline]] static inline Vec exp(Vec x) {
  x = clamp(x, -87.0f, 88.0f);
  const Vec shifter = splat(12582912.0f);  // 1.5·2^23: adding it rounds to a whole number, in the lowest bits
  const Vec shifted = x * 1.44269504088896341f + shifter;
  const Vec n = shifted - shifter;
  Vec r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  Vec p = splat(1.3814540579915047e-3f);
  p = p * r + 8.36874544620514e-3f;
  p = p * r + 4.166838899254799e-2f;
  p = p * r + 1.666652113199234e-1f;
  p = p * r + 4.999999403953552e-1f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  IntVec power, bits;
  __builtin_memcpy(&power, &shifted, sizeof power);
  __builtin_memcpy(&bits, &p, sizeof bits);
  bits += power << 23;  // n more in the exponent
  __builtin_memcpy(&p, &bits, sizeof p);
  return p;
}

[[gnu::always_inline]] static inline Vec sigmoid(Vec x) { return 1.0f / (1.0f + exp(-x)); }

// x·P(x²)/Q(x²), the rational approximation Eigen uses; beyond the clamp tanh is 1 in float32.
[[gnu::always_inline]] static inline Vec tanh(Vec x) {
  Vec c = clamp(x, -7.90531110763549805f, 7.90531110763549805f);
  Vec x2 = c * c;
  Vec p = splat(-2.76076847742355e-16f);
  p = p * x2 + 2.00018790482477e-13f;
  p = p * x2 + -8.60467152213735e-11f;
  p = p * x2 + 5.12229709037114e-08f;
  p = p * x2 + 1.48572235717979e-05f;
  p = p * x2 + 6.37261928875436e-04f;
  p = p * x2 + 4.89352455891786e-03f;
  Vec q = splat(1.19825839466702e-06f);
  q = q * x2 + 1.18534705686654e-04f;
  q = q * x2 + 2.26843463243900e-03f;
  q = q * x2 + 4.89352518554385e-03f;
  return c * p / q;
}

static inline Vec relu(Vec x) { return x < Vec{} ? Vec{} : x; }

}  // namespace unrolled::UNROLLED_NAMESPACE
