// The arguments of an attention decoder. Plain data: filled in by the bindings, read by the kernels of every instruction
// set. The equations are in unrolled/cells/attending.py.
//
// B batch, T steps, S positions of the memory, N heads, G gates, H units, A width of a key, V of a value, C of a context (V,
// unless W_o changes it), F of the cell's second input (the context, or Luong's attentional vector).
// Each head has its part of a key and of a value. Everything is float32; where no Sequence is named, a
// tensor is contiguous. A null pointer is an option not used.
#pragma once

#include <cstdint>

#include "recurrence/job.h"

namespace unrolled {

struct AttentionJob {
  CellKind kind = kNoCell;
  int batch = 0, steps = 0, positions = 0;
  int hidden = 0, key_size = 0, value_size = 0, context_size = 0, feed = 0;
  int heads = 1;
  bool luong = false;  // looks after the step, not before it
  bool narrow = false;  // products in bfloat16, where the processor has them
  float scale = 1;     // of a dot score

  Sequence gates_x;                     // (B, T, G·H)
  const float* weight_hh = nullptr;     // (G·H, H)
  const float* bias_hh = nullptr;       // (G·H,)
  const float* weight_feed = nullptr;   // (G·H, F)
  const float* weight_query = nullptr;  // (A, H); null: the query is h
  const float* bias_query = nullptr;    // (A,)
  const float* weight_out = nullptr;    // (C, V), W_o; null: the heads' contexts side by side are the context
  const float* bias_out = nullptr;      // (C,)
  const float* vector = nullptr;        // (A,): the score is additive; null: a dot product
  const float* weight_mix = nullptr;    // (F, C + H), Luong's
  const float* bias_mix = nullptr;      // (F,)
  const float* keys = nullptr;          // (B, S, A)
  const float* values = nullptr;        // (B, S, V)
  const uint8_t* mask = nullptr;        // (B, S), 1 where real; null is everywhere
  const float* hidden_mask = nullptr;   // (B, H)
  Sequence feed_mask;                   // (B, T, F)
  Sequence mix_mask;                    // (B, T, C + H)

  const int64_t* lengths = nullptr;  // (B,)
  const int64_t* order = nullptr;    // (B,) longest first; null: in order
  const int64_t* active = nullptr;   // (T,) sequences longer than t; null is all

  const float *h_0 = nullptr, *c_0 = nullptr, *fed_0 = nullptr;  // (B, H), (B, H) of an LSTM, (B, F) of Luong's form
  float *h_n = nullptr, *c_n = nullptr, *fed_n = nullptr;

  float* output = nullptr;   // (B, T, H), or (B, T, F) in Luong's form; zero past a length, as the next two
  float* context = nullptr;  // (B, T, C)
  float* weights = nullptr;  // (B, T, S), the mean over the heads

  // Saved for the backward pass, (B, T, ·) each, if not null.
  float* gates = nullptr;       // G·H, after their activations
  float* h_entering = nullptr;  // H
  float* seen = nullptr;        // H: h as the product saw it, where there is a mask
  float* c_entering = nullptr;  // H
  float* candidate = nullptr;   // H: GRU: U_n h + b_hn (reset after), or r∘h (reset before)
  float* hidden_rows = nullptr;  // H: the step's own h, in Luong's form
  float* fed_rows = nullptr;     // F: the cell's second input
  float* query_rows = nullptr;   // A: W q + b, where there is a W
  float* head_weights = nullptr;  // N·S, where there are several heads
  float* looked = nullptr;        // V: the input of W_o, if there is one
  float* mixed = nullptr;        // C + H: [c; h] as W_c saw it

  // Gradients, shaped as their tensors; null is zero, or not needed.
  Sequence d_output, d_context, d_weights;
  const float *d_h_n = nullptr, *d_c_n = nullptr, *d_fed_n = nullptr;
  float *d_h_0 = nullptr, *d_c_0 = nullptr, *d_fed_0 = nullptr;
  float* d_gates = nullptr;      // (B, T, G·H), zero past a length, as the next six
  float* d_candidate = nullptr;  // (B, T, H): ∂L/∂(U_n h) of a GRU that resets after
  float* d_seen = nullptr;       // (B, T, C): ∂L/∂context, all of it
  float* d_looked = nullptr;     // (B, T, V): the same before W_o, where there is one
  float* d_scores = nullptr;     // (B, T, N, S)
  float* d_query = nullptr;      // (B, T, A)
  float* d_mixed = nullptr;      // (B, T, F): ∂L/∂(W_c [c; h])
  float* d_keys = nullptr;       // (B, S, A), of an additive score alone; the others' is a product
  float* d_vector = nullptr;     // (B, A), each sequence's share
};

}  // namespace unrolled
