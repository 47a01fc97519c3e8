// One step of a stack of layers, for streaming: weights are packed once, in float32 or smaller.
#pragma once

#include <cstddef>
#include <cstdint>

#include "recurrence/job.h"

namespace unrolled {

enum class WeightKind : int { fp32 = 0, fp16 = 1, int16 = 2, int8 = 3 };
WeightKind weight_kind(int number);  // throws for other numbers

// Panels that hold all gates of some units: of cells with four gates, each one sum.
constexpr int kGatesTogether = 4;
[[gnu::always_inline]] constexpr bool gates_together(const CellTraits& cell) {
  return cell.gates == kGatesTogether && !cell.candidate;
}

// A matrix (rows, depth) in panels of some rows each. In whole numbers, matrix[r][k] ≈ scales[r]·q[r][k].
struct PackedMatrix {
  int rows = 0, depth = 0;
  WeightKind kind = WeightKind::fp32;
  int panel_count = 0;
  int gate_rows = 0;           // if not zero: a panel holds all gates of some units; rows of one gate
  bool byte_inputs = false;    // int8: an instruction multiplies inputs and weights of 8 bits, four at a time
  float* panels = nullptr;
  float* scales = nullptr;      // one for each row of the panels
  float* row_totals = nullptr;  // Σ_k q[r][k], to take an offset of the inputs out again
};

struct StepLayer {
  CellKind kind = kNoCell;
  int features = 0, hidden = 0, width = 0;
  bool peephole_previous = false;
  float keep_h = 0, keep_c = 0;
  PackedMatrix w, u;          // (G·H, D), (G·H, P)
  PackedMatrix u_n;           // (H, H): of a GRU that resets before, whose u has r and z alone
  PackedMatrix r;             // (P, H)
  const float* bias_ih = nullptr;
  const float* bias_hh = nullptr;
  const float* norm_ih = nullptr;
  const float* norm_hh = nullptr;
  const float* peephole = nullptr;
  const float* norm_c = nullptr;
  const float* norm_c_bias = nullptr;
};

// Rows of the batch and where they are: x (B, D), h (B, P), c (B, H) with any distance between rows.
struct StepRows {
  int batch = 0;
  const float *x = nullptr, *h = nullptr, *c = nullptr;
  int64_t x_stride = 0, h_stride = 0, c_stride = 0;
  float *new_h = nullptr, *new_c = nullptr;
};

// How many threads may share a layer's work, and whether it is long enough to wake them for it (thread_pool.h).
struct Sharing {
  int members = 1;
  bool long_enough = false;
};

struct StepKernels {
  PackedMatrix (*pack)(const float* matrix, int rows, int depth, WeightKind kind, int gate_rows);
  void (*free)(PackedMatrix&);
  // scratch has room for step_scratch(layer, batch) floats
  void (*step)(const StepLayer&, const StepRows&, float* scratch, Sharing);
  size_t (*scratch)(const StepLayer&, int batch);
};

}  // namespace unrolled
