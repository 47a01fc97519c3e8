// The Python module unrolled.kernels._native. Tensors of a job come as addresses: the caller keeps them alive, float32
// and on the CPU (unrolled/kernels/native_buffers.py). Those of a step come as they are.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unordered_map.h>
#include <nanobind/stl/vector.h>

#include "bind/apart.h"
#include "bind/ctc.h"
#include "bind/fields.h"
#include "bind/ngram.h"
#include "bind/search.h"
#include "bind/lines.h"
#include "bind/vocabulary.h"
#include "runtime/dispatch.h"
#include "runtime/parallel.h"
#include "step/calls.h"
#include "runtime/tensors.h"

namespace nb = nanobind;
using namespace unrolled;

namespace {

// What Python's own functions return: a new object, or nothing and an error.
nb::object owned(PyObject* object) {
  if (!object) throw nb::python_error();
  return nb::steal(object);
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "The native engine: recurrent scans and attending decoders on a CPU.";
#define UNROLLED_KIND                                                   \
  .def_prop_rw("kind", [](Self& s) { return static_cast<int>(s.kind); }, \
               [](Self& s, int value) { s.kind = cell_kind(value); })
#define UNROLLED_STATE(state)                                                                              \
  UNROLLED_POINTER(#state "_0", state.initial) UNROLLED_POINTER(#state "_n", state.final)                  \
  UNROLLED_POINTER("reset_" #state, state.reset) UNROLLED_POINTER(#state "_entering", state.entering)      \
  UNROLLED_POINTER(#state "_left", state.left) UNROLLED_POINTER("d_" #state "_n", state.d_final)           \
  UNROLLED_POINTER("d_" #state "_0", state.d_initial) UNROLLED_POINTER("d_reset_" #state, state.d_reset)   \
  UNROLLED_POINTER("d_probe_" #state, state.d_left) UNROLLED_SEQUENCE_AS("keep_" #state, state.keep)       \
  .def_prop_rw("keep_rate_" #state, [](Self& s) { return s.state.keep_rate; },                             \
               [](Self& s, float value) { s.state.keep_rate = value; })
  {
    using Self = ScanJob;
    nb::class_<ScanJob>(m, "ScanJob")
        .def(nb::init<>())
        UNROLLED_KIND UNROLLED_VALUE(batch) UNROLLED_VALUE(steps) UNROLLED_VALUE(features) UNROLLED_VALUE(hidden)
        UNROLLED_VALUE(width) UNROLLED_VALUE(reverse) UNROLLED_VALUE(peephole_previous) UNROLLED_VALUE(narrow)
        UNROLLED_VALUE(save) UNROLLED_VALUE(resets_batch_stride) UNROLLED_VALUE(resets_step_stride)
        UNROLLED_STATE(h) UNROLLED_STATE(c)
        UNROLLED_SEQUENCE(x) UNROLLED_SEQUENCE(output) UNROLLED_SEQUENCE(d_output) UNROLLED_SEQUENCE(d_x)
        UNROLLED_ADDRESS(gates_x) UNROLLED_ADDRESS(weight_ih) UNROLLED_ADDRESS(weight_hh) UNROLLED_ADDRESS(bias_ih)
        UNROLLED_ADDRESS(bias_hh) UNROLLED_ADDRESS(norm_hh) UNROLLED_POINTER("weight_peephole", peephole)
        UNROLLED_ADDRESS(weight_hr) UNROLLED_ADDRESS(norm_c) UNROLLED_ADDRESS(norm_c_bias) UNROLLED_ADDRESS(hidden_mask)
        UNROLLED_ADDRESS(lengths) UNROLLED_ADDRESS(order) UNROLLED_ADDRESS(active) UNROLLED_ADDRESS(resets)
        UNROLLED_ADDRESS(gates) UNROLLED_ADDRESS(seen) UNROLLED_ADDRESS(candidate) UNROLLED_ADDRESS(raw)
        UNROLLED_ADDRESS(stats) UNROLLED_ADDRESS(shown) UNROLLED_ADDRESS(d_gates_x) UNROLLED_ADDRESS(d_weight_ih)
        UNROLLED_ADDRESS(d_weight_hh) UNROLLED_ADDRESS(d_bias_ih) UNROLLED_ADDRESS(d_bias_hh) UNROLLED_ADDRESS(d_norm_hh)
        UNROLLED_POINTER("d_weight_peephole", d_peephole) UNROLLED_ADDRESS(d_weight_hr) UNROLLED_ADDRESS(d_norm_c)
        UNROLLED_ADDRESS(d_norm_c_bias)
        UNROLLED_RUN("forward", forward) UNROLLED_RUN("backward", backward);
  }
  {
    using Self = AttentionJob;
    nb::class_<AttentionJob>(m, "AttentionJob")
        .def(nb::init<>())
        UNROLLED_KIND UNROLLED_VALUE(batch) UNROLLED_VALUE(steps) UNROLLED_VALUE(positions) UNROLLED_VALUE(hidden)
        UNROLLED_VALUE(key_size) UNROLLED_VALUE(value_size) UNROLLED_VALUE(context_size) UNROLLED_VALUE(heads)
        UNROLLED_VALUE(feed) UNROLLED_VALUE(luong) UNROLLED_VALUE(narrow) UNROLLED_VALUE(scale)
        UNROLLED_SEQUENCE(gates_x) UNROLLED_SEQUENCE(feed_mask) UNROLLED_SEQUENCE(mix_mask)
        UNROLLED_SEQUENCE(d_output) UNROLLED_SEQUENCE(d_context) UNROLLED_SEQUENCE(d_weights)
        UNROLLED_ADDRESS(weight_hh) UNROLLED_ADDRESS(bias_hh) UNROLLED_ADDRESS(weight_feed)
        UNROLLED_ADDRESS(weight_query) UNROLLED_ADDRESS(bias_query) UNROLLED_ADDRESS(weight_out)
        UNROLLED_ADDRESS(bias_out) UNROLLED_ADDRESS(looked) UNROLLED_ADDRESS(head_weights) UNROLLED_ADDRESS(d_looked)
        UNROLLED_ADDRESS(vector) UNROLLED_ADDRESS(weight_mix) UNROLLED_ADDRESS(bias_mix) UNROLLED_ADDRESS(keys)
        UNROLLED_ADDRESS(values) UNROLLED_ADDRESS(mask) UNROLLED_ADDRESS(hidden_mask) UNROLLED_ADDRESS(lengths)
        UNROLLED_ADDRESS(order) UNROLLED_ADDRESS(active) UNROLLED_ADDRESS(h_0) UNROLLED_ADDRESS(c_0)
        UNROLLED_ADDRESS(fed_0) UNROLLED_ADDRESS(h_n) UNROLLED_ADDRESS(c_n) UNROLLED_ADDRESS(fed_n)
        UNROLLED_ADDRESS(output) UNROLLED_ADDRESS(context) UNROLLED_ADDRESS(weights) UNROLLED_ADDRESS(gates)
        UNROLLED_ADDRESS(h_entering) UNROLLED_ADDRESS(seen) UNROLLED_ADDRESS(c_entering) UNROLLED_ADDRESS(candidate)
        UNROLLED_ADDRESS(hidden_rows) UNROLLED_ADDRESS(fed_rows) UNROLLED_ADDRESS(query_rows) UNROLLED_ADDRESS(mixed)
        UNROLLED_ADDRESS(d_h_n) UNROLLED_ADDRESS(d_c_n) UNROLLED_ADDRESS(d_fed_n) UNROLLED_ADDRESS(d_h_0)
        UNROLLED_ADDRESS(d_c_0) UNROLLED_ADDRESS(d_fed_0) UNROLLED_ADDRESS(d_gates) UNROLLED_ADDRESS(d_candidate)
        UNROLLED_ADDRESS(d_seen) UNROLLED_ADDRESS(d_scores) UNROLLED_ADDRESS(d_query) UNROLLED_ADDRESS(d_mixed)
        UNROLLED_ADDRESS(d_keys) UNROLLED_ADDRESS(d_vector)
        UNROLLED_RUN("forward", attention_forward) UNROLLED_RUN("backward", attention_backward)
        UNROLLED_RUN("look", attention_look);
  }
  nb::class_<Stepper>(m, "Stepper")
      .def(nb::init<int>())
      .def("add_layer", &Stepper::add_layer)
      .def("look_at", [](Stepper& self, nb::list tensors, nb::list seen) {
        self.watch.look_at(tensors.ptr(), seen.ptr());
      })
      .def("step", [](const Stepper& self, nb::handle x, nb::handle state) {
        return owned(call_step(self, x.ptr(), state.ptr()));
      });
  nb::class_<Stream>(m, "Stream")
      .def(nb::init<const Stepper&, int>(), nb::keep_alive<1, 2>())
      .def("feed", [](Stream& self, nb::handle x) { return owned(call_feed(self, x.ptr())); })
      .def("state", [](Stream& self) { return owned(stream_state(self)); })
      .def("set_state", [](Stream& self, nb::handle state) { return set_stream_state(self, state.ptr()); });
  nb::dict cells;  // kind → its traits
  for (const CellTraits& cell : kCells)
    cells[nb::int_(static_cast<int>(cell.kind))] = 
        nb::make_tuple(cell.name, cell.gates, cell.memory, cell.candidate, cell.two_products);
  m.attr("CELLS") = cells;
  bind_ngram(m);
  m.def("connect", [](nb::handle tensor_type, nb::handle table) { return connect_tensors(tensor_type.ptr(), table.ptr()); },
        "Where torch's tensors are to be had; see tensors.h.");
  m.def("sort_by_length",
        [](uintptr_t lengths, int batch, int steps, uintptr_t order, uintptr_t active) {
          const auto as = [](uintptr_t address) { return reinterpret_cast<int64_t*>(address); };
          sort_by_length(as(lengths), batch, steps, as(order), as(active));
        }, "Which sequences have a step t; see job.h.");
  bind_ctc(m);
  bind_search(m);
  bind_vocabulary(m);
  bind_apart(m);
  bind_lines(m);
  m.def("isa", [] { return std::string(kernels().name); }, "The instruction set in use.");
  m.def("isas", [] {
    std::vector<std::string> names;
    for (const Kernels* one : available_kernels()) names.emplace_back(one->name);
    return names;
  }, "The instruction sets this processor can run, fastest first.");
  m.def("threading", [] { return std::string(parallel_runtime()); }, "Whose threads the scans run on.");
  m.def("set_scratch_nan", &set_scratch_nan, "Fill fresh scratch memory with NaN, for tests.");
}
