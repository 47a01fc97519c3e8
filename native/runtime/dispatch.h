// Chooses the kernels for this processor.
#pragma once

#include <string>
#include <vector>

#include "runtime/kernels.h"

namespace unrolled {

// The builds this processor can run, fastest first.
const std::vector<const Kernels*>& available_kernels();

// The kernels in use: the fastest, or those named by the environment variable UNROLLED_ISA.
const Kernels& kernels();

}  // namespace unrolled
