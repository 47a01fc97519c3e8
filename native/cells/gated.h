// A cell with one state, h, and one recurrent product, for one vector of units: what recurrence/gated.h, step/ and
// attention/ run. A cell derives from GatedCell and has
//
//   Vec forward(Vec (&gates)[G], Vec candidate, Vec h)    → the new h
//   Gradient backward(const Vec (&gates)[G], Vec candidate, Vec h, Vec gradient)
//
// `gates` enter forward as the sums W x + U h + b and leave it activated; backward reads them. `h` is h_{t-1}, `gradient`
// is ∂L/∂h_t. A cell with a candidate gets U_n h + b_hn apart, as `candidate`, and gates[G - 1] is W_n x + b_in alone.
#pragma once

#include "cells/kinds.h"
#include "runtime/math.h"

namespace unrolled::UNROLLED_NAMESPACE {

template <CellKind KIND>
struct GatedCell {
  static constexpr CellTraits kTraits = traits_of(KIND);
  static constexpr int kGates = kTraits.gates;
  static constexpr bool kPastProduct = false;  // h_{t-1} reaches h_t other than through U, too

  struct Gradient {
    Vec gates[kGates];  // at the sums
    Vec candidate;      // at U_n h + b_hn
    Vec h;              // at h_{t-1}, but for the part through U
  };
};

}  // namespace unrolled::UNROLLED_NAMESPACE
