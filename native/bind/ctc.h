// The part of the Python module that is about CTC.
#pragma once

#include <nanobind/nanobind.h>

namespace unrolled {

void bind_ctc(nanobind::module_& m);

}  // namespace unrolled
