// The part of the Python module that is about rows apart.
#pragma once

#include <nanobind/nanobind.h>

namespace unrolled {

void bind_apart(nanobind::module_& m);

}  // namespace unrolled
