// LSTM: equations in unrolled/cells/lstm.py. Gates in torch's order: i, f, g, o.
//
// A step is in three parts, gates, memory and output: a scan runs each of them over many sequences, so that their chains of
// operations overlap, and layer norm of c comes before the last.
#pragma once

#include "cells/kinds.h"
#include "runtime/math.h"

namespace unrolled::UNROLLED_NAMESPACE {

// The peephole weights of one vector of units, if there are any.
struct Peepholes {
  const float* weights = nullptr;  // (3, H): i, f, o
  bool previous = false;           // o sees c_{t-1}, not c_t
  int hidden = 0, unit = 0;

  Vec operator[](int gate) const { return load(weights + gate * hidden + unit, hidden - unit); }
  bool current() const { return weights && !previous; }  // o waits for c_t
};

struct Lstm {
  static constexpr CellTraits kTraits = traits_of(CellKind::lstm);

  // Sums become gates; o stays a sum where its peephole needs the new c.
  [[gnu::always_inline]] static void activate(Vec (&gates)[4], Vec c, const Peepholes& peep) {
    if (peep.weights) {
      gates[0] += peep[0] * c;
      gates[1] += peep[1] * c;
      if (peep.previous) gates[3] += peep[2] * c;
    }
    gates[0] = sigmoid(gates[0]);
    gates[1] = sigmoid(gates[1]);
    gates[2] = tanh(gates[2]);
    gates[3] = peep.current() ? gates[3] : sigmoid(gates[3]);
  }
  static Vec new_c(Vec i, Vec f, Vec g, Vec c) { return f * c + i * g; }
  [[gnu::always_inline]] static Vec update(Vec (&gates)[4], Vec c, const Peepholes& peep) {
    const Vec fresh = new_c(gates[0], gates[1], gates[2], c);
    if (peep.current()) gates[3] = sigmoid(gates[3] + peep[2] * fresh);
    return fresh;
  }
  static Vec output(Vec o, Vec c) { return o * tanh(c); }

  // `gradient` is ∂L/∂(o∘tanh c); the gradient at o is at the gate, after its activation.
  struct OutputGradient {
    Vec o, c;
  };
  static OutputGradient output_backward(Vec o, Vec c, Vec gradient) {
    const Vec shown = tanh(c);
    return {gradient * shown, gradient * o * (1.0f - shown * shown)};
  }

  struct Gradient {
    Vec gates[4];     // at the sums
    Vec c;            // at c_{t-1}
    Vec peephole[3];  // shares of the peephole weights' gradients
  };
  // `c` is c_{t-1}, `fresh` c_t before zoneout; `d_o` comes from output_backward, `dc` is ∂L/∂c_t; `past` is the gradient
  // that zoneout lets past the step.
  [[gnu::always_inline]] static Gradient backward(const Vec (&gates)[4], Vec c, Vec fresh, Vec d_o, Vec dc, Vec past,
                                                  const Peepholes& peep) {
    const Vec i = gates[0], f = gates[1], g = gates[2], o = gates[3];
    d_o *= o * (1.0f - o);
    if (peep.current()) dc += d_o * peep[2];
    const Vec d_i = dc * g * (i * (1.0f - i)), d_f = dc * c * (f * (1.0f - f)), d_g = dc * i * (1.0f - g * g);
    Vec d_c = dc * f + past;
    if (!peep.weights) return {{d_i, d_f, d_g, d_o}, d_c, {}};
    d_c += d_i * peep[0] + d_f * peep[1];
    if (peep.previous) d_c += d_o * peep[2];
    return {{d_i, d_f, d_g, d_o}, d_c, {d_i * c, d_f * c, d_o * (peep.previous ? c : fresh)}};
  }
};

}  // namespace unrolled::UNROLLED_NAMESPACE
