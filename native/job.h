// What one call asks for. Plain data: filled in by the bindings, read by every instruction set's build.
//
// B batch, T steps, G gates, H units, P width of h (H, or less with a projection). "Rows" are steps of sequences: row
// step_row[t] + rank·row_stride is step t of the sequence order[rank]. All buffers called rows have their own width
// and this one order; with lengths only real steps have a row. Everything is float32 and contiguous in its last
// dimension. A null pointer is a thing not asked for.
#pragma once

#include <cstdint>

namespace unrolled {

enum class CellKind : int { rnn_tanh = 0, rnn_relu = 1, lstm = 2, gru_reset_after = 3, gru_reset_before = 4 };

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
  const float* reset = nullptr;  // what a reset returns to; null is zero
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
  int kind = 0;
  int batch = 0, steps = 0, hidden = 0, width = 0;
  bool reverse = false;
  bool peephole_previous = false;

  const float* weight_hh = nullptr;    // (G·H, P)
  const float* bias_hh = nullptr;      // (G·H,)
  const float* norm_hh = nullptr;      // (G·H,)
  const float* peephole = nullptr;     // (3, H)
  const float* weight_hr = nullptr;    // (P, H)
  const float* norm_c = nullptr;       // (H,)
  const float* norm_c_bias = nullptr;  // (H,)
  const float* hidden_mask = nullptr;  // (B, P)

  const int64_t* lengths = nullptr;   // (B,)
  const int64_t* order = nullptr;     // (B,) longest first; null is as given
  const int64_t* active = nullptr;    // (T,) sequences longer than t; null is all
  const int64_t* step_row = nullptr;  // (T,); null is t·step_stride
  int64_t step_stride = 0, row_stride = 1;
  const uint8_t* resets = nullptr;  // (B, T)
  int64_t resets_batch_stride = 0, resets_step_stride = 0;

  StateJob h, c;
  Sequence output;  // (B, T, P)

  float* gates = nullptr;     // rows, G·H: in W x + b; out, if `save`, the gates after their activations
  float* seen = nullptr;      // rows, P: h as the product saw it, where a mask makes that another thing than h
  float* candidate = nullptr; // rows, H: GRU: U_n h + b_hn (reset after), or r∘h (reset before)
  float* raw = nullptr;       // rows, G·H: U h before layer norm
  float* stats = nullptr;     // rows, 4: mean and 1/deviation, of each layer norm in the step
  float* shown = nullptr;     // rows, H: o∘tanh(c), before the projection
  bool save = false;

  // backward
  Sequence d_output;              // (B, T, P)
  float* d_gates = nullptr;       // rows, G·H: ∂L/∂(W x + b)
  float* d_recurrent = nullptr;   // rows, G·H, or H for the candidate of a GRU that resets after: ∂L/∂(U h)
  float* d_hidden = nullptr;      // rows, P: ∂L/∂h_t of the step itself, for the projection's gradient
  float* d_bias_ih = nullptr;     // (G·H,)
  float* d_bias_hh = nullptr;     // (G·H,)
  float* d_norm_hh = nullptr;     // (G·H,)
  float* d_peephole = nullptr;    // (3, H)
  float* d_norm_c = nullptr;      // (H,)
  float* d_norm_c_bias = nullptr; // (H,)
};

// With lengths only real steps have rows: longest sequence first, one step after the other, as torch packs them.
// Fills order (B,), active (T,), step_row (T,) and index (Σ lengths,), the places of the rows in the sequences' own
// layout, where step t of sequence b is at b·batch_stride + t·step_stride. Returns Σ lengths.
int64_t lay_out_rows(const int64_t* lengths, int batch, int steps, int64_t batch_stride, int64_t step_stride,
                     int64_t* order, int64_t* active, int64_t* step_row, int64_t* index);

// What each instruction set's build offers.
struct Kernels {
  const char* name;
  int lanes;
  void (*forward)(const ScanJob&, int threads);
  void (*backward)(const ScanJob&, int threads);
};

}  // namespace unrolled
