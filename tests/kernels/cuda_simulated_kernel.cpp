// A kernel of KERNEL_SOURCE for the simulator: `launch(which, arguments, blocks, cluster size, shared bytes, seed)`.
#include <device.cuh>

#include KERNEL_SOURCE

namespace simulator {
int run(void (*kernel)(), int blocks, int cluster, int shared_bytes, unsigned seed);
}

static const Arguments* arguments;

#ifdef ROWS
extern "C" int launch(int, const Arguments* given, int blocks, int cluster, int shared_bytes, unsigned seed) {
    arguments = given;
    return simulator::run([] { single_step(*arguments); }, blocks, cluster, shared_bytes, seed);
}
#else
extern "C" int launch(int which, const Arguments* given, int blocks, int cluster, int shared_bytes, unsigned seed) {
    arguments = given;
    void (*const run_forward)() = [] { forward(*arguments); };
    void (*const run_backward)() = [] { backward(*arguments); };
    return simulator::run(which == 0 ? run_forward : run_backward, blocks, cluster, shared_bytes, seed);
}

// The size of the shared memory that the kernels lay out.
extern "C" int shared_bytes(int which, int chunk_rows, int chunks) {
    return which == 0 ? ForwardShared::bytes(chunk_rows, chunks) : BackwardShared::bytes(chunk_rows, chunks);
}
#endif
