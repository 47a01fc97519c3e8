// The CTC kernels of KERNEL_SOURCE for the simulator: `launch_<kernel>(arguments, blocks, shared bytes, seed)`.
#include <device.cuh>

#include KERNEL_SOURCE

namespace simulator {
int run(void (*kernel)(), int blocks, int cluster, int shared_bytes, unsigned seed);
}

static const Arguments* arguments;

#define LAUNCH(KERNEL_NAME)                                                                                       \
    extern "C" int launch_##KERNEL_NAME(const Arguments* given, int blocks, int shared_bytes, unsigned seed) {    \
        arguments = given;                                                                                        \
        return simulator::run([] { KERNEL_NAME(*arguments); }, blocks, 1, shared_bytes, seed);                    \
    }

#ifdef OF_LOSS
LAUNCH(lattice)
LAUNCH(gradient)
#else
LAUNCH(align)
#endif
