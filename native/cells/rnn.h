// The vanilla cell, h = φ(W x + U h + b): equations in unrolled/cells/rnn.py.
#pragma once

#include "cells/gated.h"

namespace unrolled::UNROLLED_NAMESPACE {

struct RnnTanh : GatedCell<CellKind::rnn_tanh> {
  static Vec forward(Vec (&gates)[1], Vec, Vec) { return gates[0] = tanh(gates[0]); }
  static Gradient backward(const Vec (&gates)[1], Vec, Vec, Vec gradient) {
    return {{gradient * (1.0f - gates[0] * gates[0])}, Vec{}, Vec{}};
  }
};

struct RnnRelu : GatedCell<CellKind::rnn_relu> {
  static Vec forward(Vec (&gates)[1], Vec, Vec) { return gates[0] = relu(gates[0]); }
  static Gradient backward(const Vec (&gates)[1], Vec, Vec, Vec gradient) {
    return {{gates[0] > Vec{} ? gradient : Vec{}}, Vec{}, Vec{}};
  }
};

}  // namespace unrolled::UNROLLED_NAMESPACE
