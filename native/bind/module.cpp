// The Python module unrolled.kernels._native. Tensors of a scan come as addresses: the caller keeps them alive, float32
// and on the CPU (unrolled/kernels/recurrence/native.py). Those of a step come as they are.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unordered_map.h>
#include <nanobind/stl/vector.h>

#include "bind/ctc.h"
#include "bind/ngram.h"
#include "bind/search.h"
#include "bind/vocabulary.h"
#include "runtime/dispatch.h"
#include "runtime/parallel.h"
#include "step/calls.h"
#include "runtime/tensors.h"

namespace nb = nanobind;
using namespace unrolled;

namespace {

// Makes a pointer member an attribute that is set from tensor.data_ptr().
template <class Struct, class Pointer>
auto address(Pointer Struct::* member) {
  return [member](Struct& self, uintptr_t value) { self.*member = reinterpret_cast<Pointer>(value); };
}

// What Python's own functions return: a new object, or nothing and an error.
nb::object owned(PyObject* object) {
  if (!object) throw nb::python_error();
  return nb::steal(object);
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "The native engine: recurrent scans and attending decoders on a CPU.";
#define UNROLLED_ADDRESS(name) \
  .def_prop_rw(#name, [](Self& s) { return reinterpret_cast<uintptr_t>(s.name); }, address(&Self::name))
#define UNROLLED_SEQUENCE(name)                                                                      \
  .def("set_" #name, [](Self& s, uintptr_t data, int64_t batch_stride, int64_t step_stride) {        \
    s.name = {reinterpret_cast<float*>(data), batch_stride, step_stride};                            \
  })
  {
    using Self = StateJob;
    nb::class_<StateJob>(m, "StateJob")
        UNROLLED_ADDRESS(initial) UNROLLED_ADDRESS(reset) UNROLLED_ADDRESS(final) UNROLLED_ADDRESS(entering)
        UNROLLED_ADDRESS(left) UNROLLED_ADDRESS(d_final) UNROLLED_ADDRESS(d_initial) UNROLLED_ADDRESS(d_reset)
        UNROLLED_ADDRESS(d_left) UNROLLED_SEQUENCE(keep)
        .def_rw("keep_rate", &StateJob::keep_rate);
  }
  {
    using Self = ScanJob;
    nb::class_<ScanJob>(m, "ScanJob")
        .def(nb::init<>())
        .def_prop_rw("kind", [](Self& s) { return static_cast<int>(s.kind); },
                     [](Self& s, int number) { s.kind = cell_kind(number); })
        .def_rw("batch", &ScanJob::batch)
        .def_rw("steps", &ScanJob::steps)
        .def_rw("features", &ScanJob::features)
        .def_rw("hidden", &ScanJob::hidden)
        .def_rw("width", &ScanJob::width)
        .def_rw("reverse", &ScanJob::reverse)
        .def_rw("peephole_previous", &ScanJob::peephole_previous)
        .def_rw("narrow", &ScanJob::narrow)
        .def_rw("save", &ScanJob::save)
        .def_rw("resets_batch_stride", &ScanJob::resets_batch_stride)
        .def_rw("resets_step_stride", &ScanJob::resets_step_stride)
        .def_prop_ro("h", [](Self& s) { return &s.h; }, nb::rv_policy::reference_internal)
        .def_prop_ro("c", [](Self& s) { return &s.c; }, nb::rv_policy::reference_internal)
        UNROLLED_SEQUENCE(x) UNROLLED_SEQUENCE(output) UNROLLED_SEQUENCE(d_output) UNROLLED_SEQUENCE(d_x)
        UNROLLED_ADDRESS(gates_x) UNROLLED_ADDRESS(weight_ih) UNROLLED_ADDRESS(weight_hh) UNROLLED_ADDRESS(bias_ih)
        UNROLLED_ADDRESS(bias_hh) UNROLLED_ADDRESS(norm_hh) UNROLLED_ADDRESS(peephole) UNROLLED_ADDRESS(weight_hr)
        UNROLLED_ADDRESS(norm_c) UNROLLED_ADDRESS(norm_c_bias) UNROLLED_ADDRESS(hidden_mask) UNROLLED_ADDRESS(lengths)
        UNROLLED_ADDRESS(order) UNROLLED_ADDRESS(active) UNROLLED_ADDRESS(resets) UNROLLED_ADDRESS(gates)
        UNROLLED_ADDRESS(seen) UNROLLED_ADDRESS(candidate) UNROLLED_ADDRESS(raw) UNROLLED_ADDRESS(stats)
        UNROLLED_ADDRESS(shown) UNROLLED_ADDRESS(d_gates_x) UNROLLED_ADDRESS(d_weight_ih) UNROLLED_ADDRESS(d_weight_hh)
        UNROLLED_ADDRESS(d_bias_ih) UNROLLED_ADDRESS(d_bias_hh) UNROLLED_ADDRESS(d_norm_hh) UNROLLED_ADDRESS(d_peephole)
        UNROLLED_ADDRESS(d_weight_hr) UNROLLED_ADDRESS(d_norm_c) UNROLLED_ADDRESS(d_norm_c_bias)
        .def("forward", [](const Self& job, int threads) { kernels().forward(job, threads); },
             nb::call_guard<nb::gil_scoped_release>())
        .def("backward", [](const Self& job, int threads) { kernels().backward(job, threads); },
             nb::call_guard<nb::gil_scoped_release>());
  }
  {
    using Self = AttentionJob;
    nb::class_<AttentionJob>(m, "AttentionJob")
        .def(nb::init<>())
        .def_prop_rw("kind", [](Self& s) { return static_cast<int>(s.kind); },
                     [](Self& s, int number) { s.kind = cell_kind(number); })
        .def_rw("batch", &AttentionJob::batch)
        .def_rw("steps", &AttentionJob::steps)
        .def_rw("positions", &AttentionJob::positions)
        .def_rw("hidden", &AttentionJob::hidden)
        .def_rw("key_size", &AttentionJob::key_size)
        .def_rw("value_size", &AttentionJob::value_size)
        .def_rw("context_size", &AttentionJob::context_size)
        .def_rw("heads", &AttentionJob::heads)
        .def_rw("feed", &AttentionJob::feed)
        .def_rw("luong", &AttentionJob::luong)
        .def_rw("narrow", &AttentionJob::narrow)
        .def_rw("scale", &AttentionJob::scale)
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
        .def("forward", [](const Self& job, int threads) { kernels().attention_forward(job, threads); },
             nb::call_guard<nb::gil_scoped_release>())
        .def("backward", [](const Self& job, int threads) { kernels().attention_backward(job, threads); },
             nb::call_guard<nb::gil_scoped_release>())
        .def("look", [](const Self& job, int threads) { kernels().attention_look(job, threads); },
             nb::call_guard<nb::gil_scoped_release>());
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
  nb::dict cells;  // kind → name, gates, memory, candidate
  for (const CellTraits& cell : kCells)
    cells[nb::int_(static_cast<int>(cell.kind))] = nb::make_tuple(cell.name, cell.gates, cell.memory, cell.candidate);
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
  m.def("isa", [] { return std::string(kernels().name); }, "The instruction set in use.");
  m.def("isas", [] {
    std::vector<std::string> names;
    for (const Kernels* one : available_kernels()) names.emplace_back(one->name);
    return names;
  }, "The instruction sets this processor can run, fastest first.");
  m.def("threading", [] { return std::string(parallel_runtime()); }, "Whose threads the scans run on.");
  m.def("set_scratch_nan", &set_scratch_nan, "Fill fresh scratch memory with NaN, for tests.");
}
