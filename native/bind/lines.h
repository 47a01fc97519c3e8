// The part of the Python module that is about pictures of lines.
#pragma once

#include <nanobind/nanobind.h>

namespace unrolled {

void bind_lines(nanobind::module_& m);

}  // namespace unrolled
