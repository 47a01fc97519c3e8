// Attention of one query over one memory, and its backward pass: scores, softmax over real positions, weighted sum.
#pragma once

#include <atomic>

#include "attention/job.h"
#include "runtime/math.h"
#include "runtime/parallel.h"

namespace unrolled::UNROLLED_NAMESPACE {

// The memory of one sequence: its keys and values, and which of its positions are real.
struct MemoryRows {
  const float *keys, *values;
  const int* real;
  int count;
};

static inline float dot(const float* a, const float* b, int size) {
  Vec total = {};
  for (int i = 0; i < size; i += kLanes) total += load(a + i, size - i) * load(b + i, size - i);
  return sum(total);
}

// vᵀ tanh(q + k)
static inline float additive_score(const float* query, const float* key, const float* vector, int size) {
  Vec total = {};
  for (int i = 0; i < size; i += kLanes) {
    const int count = size - i;
    total += load(vector + i, count) * tanh(load(query + i, count) + load(key + i, count));
  }
  return sum(total);
}

// In place; room for a whole vector at the end.
static inline void softmax(float* scores, int count) {
  float most = scores[0];
  bool undefined = false;
  for (int i = 0; i < count; ++i) {
    most = scores[i] > most ? scores[i] : most;
    undefined |= scores[i] != scores[i];
  }
  Vec totals = {};
  for (int i = 0; i < count; i += kLanes) {
    const Vec power = exp(load(scores + i, count - i) - most);
    store(scores + i, power);
    for (int lane = 0; lane < kLanes; ++lane) totals[lane] += i + lane < count ? power[lane] : 0.0f;
  }
  const float inverse = undefined ? __builtin_nanf("") : 1.0f / sum(totals);
  for (int i = 0; i < count; i += kLanes) store(scores + i, load(scores + i) * inverse);
}

// One head's part of keys and values, of `key` and `value` columns from its first on.
struct Head {
  int first_key, key, first_value, value;
  Head(const AttentionJob& job, int n)
      : first_key(job.key_size / job.heads * n),
        key(job.key_size / job.heads),
        first_value(job.value_size / job.heads * n),
        value(job.value_size / job.heads) {}
};

// Weights (S), those of each head (N, S) or null, and context (V); `scratch` holds S + kLanes.
static void look(const AttentionJob& job, MemoryRows memory, const float* query, float* scratch, float* weights,
                 float* head_weights, float* context) {
  for (int s = 0; s < job.positions; ++s) weights[s] = 0;
  for (int n = 0; n < job.heads; ++n) {
    const Head head(job, n);
    const float *q = query + head.first_key, *keys = memory.keys + head.first_key;
    for (int i = 0; i < memory.count; ++i) {
      const float* key = keys + static_cast<size_t>(memory.real[i]) * job.key_size;
      scratch[i] = job.vector ? additive_score(q, key, job.vector + head.first_key, head.key)
                              : job.scale * dot(q, key, head.key);
    }
    if (memory.count > 0) softmax(scratch, memory.count);
    for (int i = 0; i < memory.count; ++i) weights[memory.real[i]] += scratch[i] / job.heads;
    if (head_weights) {
      float* own = head_weights + static_cast<size_t>(n) * job.positions;
      for (int s = 0; s < job.positions; ++s) own[s] = 0;
      for (int i = 0; i < memory.count; ++i) own[memory.real[i]] = scratch[i];
    }
    const float* values = memory.values + head.first_value;
    for (int unit = 0; unit < head.value; unit += kLanes) {
      const int count = head.value - unit;
      Vec total = {};
      for (int i = 0; i < memory.count; ++i)
        total += scratch[i] * load(values + static_cast<size_t>(memory.real[i]) * job.value_size + unit, count);
      store(context + head.first_value + unit, total, count);
    }
  }
}

// From ∂L/∂context and ∂L/∂weights (or null) to d_query (A) and d_scores (N, S); `weights` are each head's. Of an
// additive score, d_keys (S, A) and d_vector (A) are added to; of others they follow from d_scores.
static void look_back(const AttentionJob& job, MemoryRows memory, const float* query, const float* weights,
                      const float* d_context, const float* d_weights, float* scratch, float* d_query, float* d_scores,
                      float* d_keys, float* d_vector) {
  for (int n = 0; n < job.heads; ++n, weights += job.positions, d_scores += job.positions) {
    const Head head(job, n);
    const float* values = memory.values + head.first_value;
    float common = 0;
    for (int i = 0; i < memory.count; ++i) {
      const int s = memory.real[i];
      scratch[i] = dot(d_context + head.first_value, values + static_cast<size_t>(s) * job.value_size, head.value);
      if (d_weights) scratch[i] += d_weights[s] / job.heads;
      common += weights[s] * scratch[i];
    }
    for (int s = 0; s < job.positions; ++s) d_scores[s] = 0;
    for (int i = 0; i < memory.count; ++i) {
      const int s = memory.real[i];
      d_scores[s] = scratch[i] = weights[s] * (scratch[i] - common);
    }
    for (int unit = head.first_key; unit < head.first_key + head.key; unit += kLanes) {
      const int count = head.first_key + head.key - unit;
      Vec d_q = {};
      if (!job.vector) {
        for (int i = 0; i < memory.count; ++i)
          d_q += scratch[i] * load(memory.keys + static_cast<size_t>(memory.real[i]) * job.key_size + unit, count);
        store(d_query + unit, d_q * job.scale, count);
        continue;
      }
      const Vec q = load(query + unit, count), v = load(job.vector + unit, count);
      Vec d_v = {};
      for (int i = 0; i < memory.count; ++i) {
        const size_t at = static_cast<size_t>(memory.real[i]) * job.key_size + unit;
        const Vec shown = tanh(q + load(memory.keys + at, count));
        const Vec gradient = scratch[i] * v * (1.0f - shown * shown);
        d_v += scratch[i] * shown;
        d_q += gradient;
        store(d_keys + at, load(d_keys + at, count) + gradient, count);
      }
      store(d_vector + unit, load(d_vector + unit, count) + d_v, count);
      store(d_query + unit, d_q, count);
    }
  }
}

// query_rows (B, T, A) → weights (B, T, S) and looked (B, T, V): T known queries for each of B memories, forward only.
// The hypotheses of a search are such queries: they share one memory.
static void look_at_memories(const AttentionJob& job, int threads) {
  struct Context {
    const AttentionJob& job;
    std::atomic<int> next{0};
  } context{job};
  parallel(job.batch < threads ? job.batch : threads, [](void* data, int, int) {
    auto& shared = *static_cast<Context*>(data);
    const AttentionJob& job = shared.job;
    float* scratch = allocate_scratch(2 * job.positions + kLanes);
    int* real = reinterpret_cast<int*>(scratch + job.positions + kLanes);
    for (int b; (b = shared.next.fetch_add(1)) < job.batch;) {
      const size_t first = static_cast<size_t>(b) * job.positions;
      MemoryRows memory{job.keys + first * job.key_size, job.values + first * job.value_size, real, 0};
      for (int s = 0; s < job.positions; ++s)
        if (!job.mask || job.mask[first + s]) real[memory.count++] = s;
      for (size_t row = static_cast<size_t>(b) * job.steps; row < static_cast<size_t>(b + 1) * job.steps; ++row)
        look(job, memory, job.query_rows + row * job.key_size, scratch, job.weights + row * job.positions, nullptr,
             job.looked + row * job.value_size);
    }
    free_scratch(scratch);
  }, &context);
}

}  // namespace unrolled::UNROLLED_NAMESPACE
