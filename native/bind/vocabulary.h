// The part of the Python module that is about scores over a vocabulary.
#pragma once

#include <nanobind/nanobind.h>

namespace unrolled {

void bind_vocabulary(nanobind::module_& m);

}  // namespace unrolled
