// The kernels of KERNEL_SOURCE, of decoders with attention, for the simulator: `launch(name, arguments, blocks, shared bytes, seed)`.
#include <device.cuh>

#include KERNEL_SOURCE

namespace simulator {
int run(void (*kernel)(), int blocks, int cluster, int shared_bytes, unsigned seed);
}

static const Arguments* arguments;

struct Named {
    const char* name;
    void (*run)();
};

#define NAMED(kernel) {#kernel, [] { kernel(*arguments); }}

static const Named KERNELS[] = {
#ifdef ADDITIVE
    NAMED(attend), NAMED(attend_back),
#if ADDITIVE
    NAMED(keys_back),
#endif
#else
    NAMED(step_cell), NAMED(step_cell_back),
#if TWO_PRODUCTS
    NAMED(reset_hidden), NAMED(reset_hidden_back),
#endif
#if LUONG
    NAMED(mix), NAMED(mix_back),
#endif
#endif
};

extern "C" int launch(const char* name, const Arguments* given, int blocks, int shared_bytes, unsigned seed) {
    arguments = given;
    for (const Named& kernel : KERNELS)
        if (std::strcmp(kernel.name, name) == 0) return simulator::run(kernel.run, blocks, 1, shared_bytes, seed);
    return -1;
}
