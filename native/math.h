// exp, sigmoid and tanh on vectors, within a few units in the last place of float32; a NaN stays a NaN.
#pragma once

#include "vec.h"

namespace unrolled::UNROLLED_NAMESPACE {

// Comparisons with a NaN are false, so that a NaN passes through.
[[gnu::always_inline]] static inline Vec clamp(Vec x, float low, float high) {
  x = x < splat(low) ? splat(low) : x;
  return x > splat(high) ? splat(high) : x;
}

// 2^n·e^r with |r| ≤ ln 2 / 2; the polynomial is Cephes' expf.
[[gnu::always_inline]] static inline Vec exp(Vec x) {
  x = clamp(x, -87.0f, 88.0f);
  const Vec shifter = splat(12582912.0f);  // 1.5·2^23: adding it rounds to a whole number
  Vec n = (x * 1.44269504088896341f + shifter) - shifter;
  Vec r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  Vec p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + (r + 1.0f);
  IntVec exponent = (__builtin_convertvector(n, IntVec) + 127) << 23;
  Vec scale;
  __builtin_memcpy(&scale, &exponent, sizeof scale);
  return p * scale;
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
