#include "runtime/dispatch.h"

#include <cstdlib>
#include <stdexcept>

#include "runtime/platform.h"

namespace unrolled {

#if defined(UNROLLED_X86)
namespace avx512 { extern const Kernels kKernels; }
namespace avx2 { extern const Kernels kKernels; }
namespace plain { extern const Kernels kKernels; }
#elif defined(UNROLLED_ARM)
namespace neon_dot { extern const Kernels kKernels; }
namespace neon { extern const Kernels kKernels; }
#else
namespace plain { extern const Kernels kKernels; }
#endif

const std::vector<const Kernels*>& available_kernels() {
  static const std::vector<const Kernels*> available = [] {
    std::vector<const Kernels*> found;
#if defined(UNROLLED_X86)
    if (processor().avx512) found.push_back(&avx512::kKernels);
    if (processor().avx2) found.push_back(&avx2::kKernels);
    found.push_back(&plain::kKernels);
#elif defined(UNROLLED_ARM)
    if (processor().dot_product) found.push_back(&neon_dot::kKernels);
    found.push_back(&neon::kKernels);
#else
    found.push_back(&plain::kKernels);
#endif
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
