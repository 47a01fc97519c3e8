// The part of the Python module that is about searches over frames.
#pragma once

#include <nanobind/nanobind.h>

namespace unrolled {

void bind_search(nanobind::module_& m);

}  // namespace unrolled
