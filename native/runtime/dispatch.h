// Which build of the kernels runs here.
#pragma once

#include <string>
#include <vector>

#include "runtime/kernels.h"

namespace unrolled {

// The builds this processor can run, fastest first.
const std::vector<const Kernels*>& available_kernels();

// The one in use: the fastest, or the one that the environment variable UNROLLED_ISA names.
const Kernels& kernels();

}  // namespace unrolled
