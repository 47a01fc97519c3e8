#include "step/calls.h"

#include <algorithm>

#include "runtime/tensors.h"

namespace unrolled {
namespace {

// The sizes of a stepper's states, and the places of both in one piece of memory.
struct StateSizes {
  int64_t h[3], c[3];
  bool has_memory;
  StateSizes(const Stepper& stepper, int64_t batch)
      : h{batch, stepper.depth(), stepper.width()},
        c{batch, stepper.depth(), stepper.hidden()},
        has_memory(stepper.has_memory()) {}
  static size_t count(const int64_t (&sizes)[3]) { return static_cast<size_t>(sizes[0] * sizes[1] * sizes[2]); }
  size_t c_begins() const { return (count(h) + 15) / 16 * 16; }
  size_t total() const { return c_begins() + (has_memory ? count(c) : 0); }
};

// The addresses of a state's tensors; h is null if they do not fit.
struct StateFloats {
  float *h = nullptr, *c = nullptr;
  StateFloats(const StateSizes& sizes, PyObject* state) {
    if (!PyTuple_Check(state) || PyTuple_Size(state) != (sizes.has_memory ? 2 : 1)) return;
    if (sizes.has_memory && !(c = floats_of(PyTuple_GetItem(state, 1), sizes.c, 3))) return;
    h = floats_of(PyTuple_GetItem(state, 0), sizes.h, 3);
  }
};

PyObject* contiguous(const Memory& memory, float* start, const int64_t (&sizes)[3]) {
  const int64_t strides[] = {sizes[1] * sizes[2], sizes[2], 1};
  return memory.tensor(start, sizes, strides, 3);
}

// A tuple that owns its items; null if one of them is null.
template <class... Items>
PyObject* tuple_of(Items*... items) {
  PyObject* tuple = (items && ...) ? PyTuple_Pack(sizeof...(items), items...) : nullptr;
  (Py_XDECREF(items), ...);
  return tuple;
}

PyObject* state_tuple(const Memory& memory, const StateSizes& sizes) {
  PyObject* h = contiguous(memory, memory.floats(), sizes.h);
  if (!sizes.has_memory) return tuple_of(h);
  return tuple_of(h, contiguous(memory, memory.floats() + sizes.c_begins(), sizes.c));
}

PyObject* none() {
  Py_INCREF(Py_None);
  return Py_None;
}

// Releases Python's lock where the step takes longer than that.
template <class Run>
void run_step(const Stepper& stepper, int batch, Run run) {
  PyThreadState* const released = stepper.is_long(batch) ? PyEval_SaveThread() : nullptr;
  run();
  if (released) PyEval_RestoreThread(released);
}

}  // namespace

PyObject* call_step(const Stepper& stepper, PyObject* x, PyObject* state) {
  if (!stepper.watch.unchanged()) return none();
  const int64_t x_sizes[] = {kAnySize, stepper.features()};
  int64_t batch = 0;
  const float* input = floats_of(x, x_sizes, 2, &batch);
  if (!input) return none();
  const StateSizes sizes(stepper, batch);
  const StateFloats old(sizes, state);
  if (!old.h) return none();
  const Memory memory(sizes.total());
  float* new_h = memory.floats();
  run_step(stepper, static_cast<int>(batch), [&] {
    stepper.step(static_cast<int>(batch), input, old.h, old.c, new_h, old.c ? new_h + sizes.c_begins() : nullptr);
  });
  const int64_t output_sizes[] = {batch, sizes.h[2]}, strides[] = {sizes.h[1] * sizes.h[2], 1};
  PyObject* output = memory.tensor(new_h + (sizes.h[1] - 1) * sizes.h[2], output_sizes, strides, 2);
  return tuple_of(output, state_tuple(memory, sizes));
}

PyObject* call_feed(Stream& stream, PyObject* x) {
  const Stepper& stepper = stream.stepper();
  if (!stepper.watch.unchanged()) return none();
  const int64_t batch = stream.batch(), width = stepper.width(), row = stepper.depth() * width;
  const int64_t x_sizes[] = {batch, stepper.features()};
  const float* input = floats_of(x, x_sizes, 2);
  if (!input) return none();
  run_step(stepper, stream.batch(), [&] { stream.step(input); });
  const Memory memory(static_cast<size_t>(batch * width));
  for (int64_t b = 0; b < batch; ++b)
    std::copy_n(stream.h() + (b + 1) * row - width, width, memory.floats() + b * width);
  const int64_t sizes[] = {batch, width}, strides[] = {width, 1};
  return memory.tensor(memory.floats(), sizes, strides, 2);
}

PyObject* stream_state(Stream& stream) {
  const StateSizes sizes(stream.stepper(), stream.batch());
  const Memory memory(sizes.total());
  std::copy_n(stream.h(), StateSizes::count(sizes.h), memory.floats());
  if (sizes.has_memory) std::copy_n(stream.c(), StateSizes::count(sizes.c), memory.floats() + sizes.c_begins());
  return state_tuple(memory, sizes);
}

bool set_stream_state(Stream& stream, PyObject* state) {
  const StateSizes sizes(stream.stepper(), stream.batch());
  const StateFloats fresh(sizes, state);
  if (!fresh.h) return false;
  std::copy_n(fresh.h, StateSizes::count(sizes.h), stream.h());
  if (fresh.c) std::copy_n(fresh.c, StateSizes::count(sizes.c), stream.c());
  return true;
}

}  // namespace unrolled
