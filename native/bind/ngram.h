// The part of the Python module that is about n-gram models.
#pragma once

#include <nanobind/nanobind.h>

namespace unrolled {

void bind_ngram(nanobind::module_& m);

}  // namespace unrolled
