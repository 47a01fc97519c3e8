// Steps as Python calls them, tensors in and tensors out.
#pragma once

#include <Python.h>

#include "step/stepper.h"

namespace unrolled {

// x (B, D) and the state, a tuple of (B, L, size) → (the last layer's h (B, P), the new state). None if an argument is not
// a contiguous float32 tensor of the right shape on the CPU, or a watched tensor was written to; null with Python's error set if there is no memory.
PyObject* call_step(const Stepper& stepper, PyObject* x, PyObject* state);

// x (B, D) → the last layer's new h (B, P), in memory of its own; None and null as above.
PyObject* call_feed(Stream& stream, PyObject* x);

// The stream's state as call_step takes it, copied; and the other way, false if the argument does not fit.
PyObject* stream_state(Stream& stream);
bool set_stream_state(Stream& stream, PyObject* state);

}  // namespace unrolled
