// The arguments of a scan. Plain data: filled in by the bindings, read by the kernels of every instruction set.
//
// B batch, T steps, D input features, G gates, H units, P width of h (H, or less with a projection). "Rows" are (T·B, ·),
// step by step; with lengths, a step's rows stand longest sequence first, and the rows of padding are not touched.
// Everything is float32 and contiguous in its last dimension. A null pointer is an option not used.
#pragma once

#include <cstdint>

#include "cells/kinds.h"

namespace unrolled {

// A (B, T, ·) tensor with any strides for batch and time.
struct Sequence {
  float* data = nullptr;
  int64_t batch_stride = 0;
  int64_t step_stride = 0;
  float* at(int64_t b, int64_t t) const { return data + b * batch_stride + t * step_stride; }
};

// One of the states, h or c: (B, size) each.
struct StateJob {
  const float* initial = nullptr;
  const float* reset = nullptr;  // the state after a reset; null is zero
  float* final = nullptr;
  float* entering = nullptr;  // rows, size: the state each step read
  float* left = nullptr;      // rows, size: the state each step left (traces)
  Sequence keep;              // zoneout: the share of the old state kept
  float keep_rate = 0;        // the same for all, where there is no tensor

  // backward
  const float* d_final = nullptr;
  float* d_initial = nullptr;
  float* d_reset = nullptr;  // (B, size), summed into
  float* d_left = nullptr;   // rows, size: ∂L/∂(state after the step) (traces)
};

struct ScanJob {
  CellKind kind = kNoCell;
  int batch = 0, steps = 0, features = 0, hidden = 0, width = 0;
  bool reverse = false;
  bool peephole_previous = false;
  bool narrow = false;  // products in bfloat16, where the processor has them; of an LSTM without projection or layer norm

  Sequence x;                          // (B, T, D); or, instead of it,
  const float* gates_x = nullptr;      // rows, G·H: W x + b for all steps
  const float* weight_ih = nullptr;    // (G·H, D)
  const float* weight_hh = nullptr;    // (G·H, P)
  const float* bias_ih = nullptr;      // (G·H,); null with gates_x
  const float* bias_hh = nullptr;      // (G·H,)
  const float* norm_hh = nullptr;      // (G·H,)
  const float* peephole = nullptr;     // (3, H)
  const float* weight_hr = nullptr;    // (P, H)
  const float* norm_c = nullptr;       // (H,)
  const float* norm_c_bias = nullptr;  // (H,)
  const float* hidden_mask = nullptr;  // (B, P)

  const int64_t* lengths = nullptr;  // (B,)
  const int64_t* order = nullptr;    // (B,) longest first; null: in order
  const int64_t* active = nullptr;   // (T,) sequences longer than t; null is all
  const uint8_t* resets = nullptr;   // (B, T)
  int64_t resets_batch_stride = 0, resets_step_stride = 0;

  StateJob h, c;
  Sequence output;  // (B, T, P)

  // saved for the backward pass, if `save`
  bool save = false;
  float* gates = nullptr;      // rows, G·H: after their activations
  float* seen = nullptr;       // rows, P: h∘mask, the input of the product, if there is a mask
  float* candidate = nullptr;  // rows, H: GRU: U_n h + b_hn (reset after), or r∘h (reset before)
  float* raw = nullptr;        // rows, G·H: U h before layer norm
  float* stats = nullptr;      // rows, 4: mean and 1/deviation, of each layer norm in the step
  float* shown = nullptr;      // rows, H: o∘tanh(c), before the projection

  // gradients
  Sequence d_output;                // (B, T, P)
  Sequence d_x;                     // (B, T, D)
  float* d_gates_x = nullptr;       // rows, G·H
  float* d_weight_ih = nullptr;     // shaped as their tensors; vectors are added to
  float* d_weight_hh = nullptr;
  float* d_bias_ih = nullptr;
  float* d_bias_hh = nullptr;
  float* d_norm_hh = nullptr;
  float* d_peephole = nullptr;
  float* d_weight_hr = nullptr;
  float* d_norm_c = nullptr;
  float* d_norm_c_bias = nullptr;
};

// Sorts sequences longest first: order (B,), and active (T,), the number that have a step t.
void sort_by_length(const int64_t* lengths, int batch, int steps, int64_t* order, int64_t* active);

}  // namespace unrolled
