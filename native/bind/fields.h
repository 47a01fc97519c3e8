// Jobs in Python: a C++ struct whose fields are set by name. Tensors come as addresses, tensor.data_ptr().
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "runtime/dispatch.h"

// Each of these continues an nb::class_<Self>.
#define UNROLLED_VALUE(name) .def_rw(#name, &Self::name)
#define UNROLLED_POINTER(python, member)                                                      \
  .def_prop_rw(python, [](Self& s) { return reinterpret_cast<uintptr_t>(s.member); },         \
               [](Self& s, uintptr_t value) { s.member = reinterpret_cast<decltype(s.member)>(value); })
#define UNROLLED_ADDRESS(name) UNROLLED_POINTER(#name, name)
#define UNROLLED_SEQUENCE_AS(python, member)                                                  \
  .def("set_" python, [](Self& s, uintptr_t data, int64_t batch_stride, int64_t step_stride) { \
    s.member = {reinterpret_cast<float*>(data), batch_stride, step_stride};                   \
  })
#define UNROLLED_SEQUENCE(name) UNROLLED_SEQUENCE_AS(#name, name)
#define UNROLLED_RUN(python, kernel)                                                          \
  .def(python, [](const Self& job, int threads) { unrolled::kernels().kernel(job, threads); }, \
       nanobind::call_guard<nanobind::gil_scoped_release>())
