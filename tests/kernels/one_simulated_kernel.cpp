// A kernel of independent blocks for the simulator: `launch_kernel(arguments, blocks, shared bytes, seed)`.
#include <device.cuh>

#include KERNEL_SOURCE

namespace simulator {
int run(void (*kernel)(), int blocks, int cluster, int shared_bytes, unsigned seed);
}

static const Arguments* arguments;

extern "C" int launch_kernel(const Arguments* given, int blocks, int shared_bytes, unsigned seed) {
    arguments = given;
    return simulator::run([] { KERNEL_NAME(*arguments); }, blocks, 1, shared_bytes, seed);
}
