// Layer norm of one row, forward and back (Ba, Kiros & Hinton 2016).
#pragma once

#include "runtime/vec.h"

namespace unrolled::UNROLLED_NAMESPACE {

constexpr float kNormEpsilon = 1e-5f;  // torch's

struct NormStats {
  float mean, inverse;  // 1 / √(variance + ε)
};

static inline NormStats norm_stats(const float* x, int size) {
  Vec total = {};
  for (int i = 0; i < size; i += kLanes) total += load(x + i, size - i);
  const float mean = sum(total) / static_cast<float>(size);
  Vec squares = {};
  for (int i = 0; i < size; i += kLanes) {
    Vec distance = load(x + i, size - i) - mean;
    for (int lane = size - i; lane < kLanes; ++lane) distance[lane] = 0;
    squares += distance * distance;
  }
  return {mean, 1.0f / __builtin_sqrtf(sum(squares) / static_cast<float>(size) + kNormEpsilon)};
}

// y = gain∘(x − mean)/deviation + shift; y has room for whole vectors
static inline void normalize(const float* x, int size, NormStats stats, const float* gain, const float* shift, float* y) {
  for (int i = 0; i < size; i += kLanes) {
    Vec normal = (load(x + i, size - i) - stats.mean) * stats.inverse * load(gain + i, size - i);
    if (shift) normal += load(shift + i, size - i);
    store(y + i, normal, size - i);
  }
}

// dx from dy, and each row's share of the gain's gradient, d_gain += dy∘x̂. dx may be dy.
template <class AddGain>
static inline void norm_backward(const float* x, int size, NormStats stats, const float* gain, const float* dy, float* dx,
                                 AddGain add_gain) {
  Vec total = {}, along = {};
  for (int i = 0; i < size; i += kLanes) {
    const Vec normal = (load(x + i, size - i) - stats.mean) * stats.inverse;
    const Vec d = load(dy + i, size - i);
    const Vec scaled = d * load(gain + i, size - i);
    total += scaled;
    along += scaled * normal;
    add_gain(i, size - i, d * normal);
  }
  const float mean = sum(total) / static_cast<float>(size), slope = sum(along) / static_cast<float>(size);
  for (int i = 0; i < size; i += kLanes) {
    const Vec normal = (load(x + i, size - i) - stats.mean) * stats.inverse;
    const Vec scaled = load(dy + i, size - i) * load(gain + i, size - i);
    store(dx + i, (scaled - mean - normal * slope) * stats.inverse, size - i);
  }
}

}  // namespace unrolled::UNROLLED_NAMESPACE
