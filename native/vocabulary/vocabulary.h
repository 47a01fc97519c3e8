// Scores over a vocabulary: the best few of each row, and the cross-entropy with its gradient.
#pragma once

#include <cstdint>

namespace unrolled {

// The `best` highest of each row's V scores that are not blocked, in order; of equal ones, the first. Where there are
// fewer, token 0 with −infinity; where a score is NaN, all values of its row are.
struct TopJob {
  int64_t rows = 0;
  int size = 0, best = 0;            // V, k
  const float* scores = nullptr;     // (rows, V)
  int64_t row_stride = 0;
  const uint8_t* blocked = nullptr;  // (rows, V) or, with a stride of 0, (V,): 1 where a token may not be chosen
  int64_t blocked_stride = 0;
  float* values = nullptr;           // (rows, k)
  int64_t* tokens = nullptr;         // (rows, k)
  float* totals = nullptr;           // (rows,): log Σ exp of all scores, blocked or not; null: not needed
};

// −log softmax of each row's target, smoothed: (1 − ε) of the target's and ε of the mean over all V.
struct CrossEntropyJob {
  int64_t rows = 0;
  int size = 0;             // V
  void* scores = nullptr;   // (rows, V) float32, or bfloat16; with `gradient` its gradient takes its place
  int64_t row_stride = 0;
  bool narrow = false;      // bfloat16
  bool gradient = false;
  float smoothing = 0;      // ε
  const int64_t* targets = nullptr;  // (rows,)
  float* losses = nullptr;           // (rows,)
  float* column_sums = nullptr;      // (V,): the gradient's, which is the bias's gradient; null: not needed
};

// x Wᵀ + b with x and W rounded to bfloat16, in float32 sums. Where `narrow` runs.
struct NarrowScoresJob {
  int rows = 0, size = 0, depth = 0;
  const float* x = nullptr;  // (rows, depth)
  int64_t x_stride = 0;
  const float* weight = nullptr;  // (V, depth)
  const float* bias = nullptr;    // (V,) or null
  float* scores = nullptr;        // (rows, V)
  int64_t scores_stride = 0;
};

}  // namespace unrolled
