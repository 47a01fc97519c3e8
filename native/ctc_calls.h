// The Python face of the CTC loss.
#pragma once

#include <nanobind/nanobind.h>

namespace unrolled {

void bind_ctc(nanobind::module_& m);

}  // namespace unrolled
