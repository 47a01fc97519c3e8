// Products and attention whose rows do not depend on one another: each sum is added up in one order, which neither the
// number of rows nor of threads changes, and positions that a mask hides are left out before anything is added.
#pragma once

#include <cstdint>

namespace unrolled {

// out = x wᵀ + bias, or x w where w is `upright`; one such product for each of `count`.
struct ApartProductJob {
  int count = 1, rows = 0, columns = 0, depth = 0;
  const float* x = nullptr;     // (count, rows, depth)
  int64_t x_next = 0, x_row = 0;
  const float* w = nullptr;     // (count, columns, depth), each contiguous; `upright`: (count, depth, columns)
  int64_t w_next = 0;           // 0: one for all
  bool upright = false;
  const float* bias = nullptr;  // (columns,) or null
  float* out = nullptr;         // (count, rows, columns), contiguous
};

// softmax(scale·q kᵀ) v of each head, over the positions that a query sees.
struct ApartAttentionJob {
  int batch = 0, heads = 0, queries = 0, positions = 0, size = 0;
  const float *q = nullptr, *k = nullptr, *v = nullptr;  // (B, N, T, d), (B, N, S, d) twice
  int64_t q_batch = 0, q_head = 0, q_row = 0;
  int64_t k_batch = 0, k_head = 0, k_row = 0;
  int64_t v_batch = 0, v_head = 0, v_row = 0;
  const uint8_t* mask = nullptr;  // 1 where a query sees a position; null: it sees all
  int64_t mask_batch = 0, mask_row = 0;  // a row of 0: one for all queries
  bool causal = false;  // the last query sees all positions, the one before it all but the last, …
  float scale = 1;
  float* out = nullptr;      // (B, T, N·d), contiguous
  float* weights = nullptr;  // (B, N, T, S) or null
};

}  // namespace unrolled
