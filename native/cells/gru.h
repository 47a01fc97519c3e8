// GRU in both conventions: equations in unrolled/cells/gru.py. Gates in torch's order: r, z, n; z keeps the old state.
#pragma once

#include "cells/gated.h"

namespace unrolled::UNROLLED_NAMESPACE {

template <CellKind KIND>
struct Gru : GatedCell<KIND> {
  static constexpr bool kPastProduct = true;

  static Vec updated(Vec z, Vec n, Vec h) { return (1.0f - z) * n + z * h; }

  // Gradients at z and n before their activations, and at h past the product.
  struct UpdateGradient {
    Vec z, n, h;
  };
  static UpdateGradient update_backward(Vec z, Vec n, Vec h, Vec gradient) {
    return {gradient * (h - n) * (z * (1.0f - z)), gradient * (1.0f - z) * (1.0f - n * n), gradient * z};
  }
};

struct GruResetAfter : Gru<CellKind::gru_reset_after> {
  static Vec forward(Vec (&gates)[3], Vec candidate, Vec h) {
    gates[0] = sigmoid(gates[0]);
    gates[1] = sigmoid(gates[1]);
    gates[2] = tanh(gates[2] + gates[0] * candidate);
    return updated(gates[1], gates[2], h);
  }
  static Gradient backward(const Vec (&gates)[3], Vec candidate, Vec h, Vec gradient) {
    const Vec r = gates[0];
    const UpdateGradient d = update_backward(gates[1], gates[2], h, gradient);
    return {{d.n * candidate * (r * (1.0f - r)), d.z, d.n}, d.n * r, d.h};
  }
};

// r∘h is what U_n reads, so that a step is in two parts, with the second product between them.
struct GruResetBefore : Gru<CellKind::gru_reset_before> {
  // Activates r and z; `h` is h_{t-1} as U saw it. Returns r∘h.
  static Vec reset(Vec& r, Vec& z, Vec h) {
    r = sigmoid(r);
    z = sigmoid(z);
    return r * h;
  }
  static Vec candidate(Vec z, Vec& n, Vec h) {
    n = tanh(n);
    return updated(z, n, h);
  }

  // From the gradient at r∘h: at r before its activation, and at h.
  struct ResetGradient {
    Vec r, h;
  };
  static ResetGradient reset_backward(Vec r, Vec h, Vec gradient) {
    return {gradient * h * (r * (1.0f - r)), gradient * r};
  }
};

}  // namespace unrolled::UNROLLED_NAMESPACE
