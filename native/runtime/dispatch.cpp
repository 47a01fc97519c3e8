#include "runtime/dispatch.h"

#include <cstdlib>
#include <stdexcept>

namespace unrolled {

#if defined(UNROLLED_X86)
namespace avx512 { extern const Kernels kKernels; }
namespace avx2 { extern const Kernels kKernels; }
#endif
namespace plain { extern const Kernels kKernels; }

const std::vector<const Kernels*>& available_kernels() {
  static const std::vector<const Kernels*> available = [] {
    std::vector<const Kernels*> found;
#if defined(UNROLLED_X86)
    __builtin_cpu_init();
    const bool avx2_runs =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    if (avx2_runs && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
      found.push_back(&avx512::kKernels);
    if (avx2_runs) found.push_back(&avx2::kKernels);
#endif
    found.push_back(&plain::kKernels);
    return found;
  }();
  return available;
}

const Kernels& kernels() {
  static const Kernels* const chosen = [] {
    const char* name = std::getenv("UNROLLED_ISA");
    if (!name || !*name) return available_kernels().front();
    std::string names;
    for (const Kernels* one : available_kernels()) {
      if (std::string(one->name) == name) return one;
      names += (names.empty() ? "" : ", ") + std::string(one->name);
    }
    throw std::invalid_argument("UNROLLED_ISA=" + std::string(name) + " does not run here. Choices: " + names + ".");
  }();
  return *chosen;
}

}  // namespace unrolled
