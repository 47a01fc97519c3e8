// An empty kernel, from which the driver computes how many clusters a GPU runs at once.
#include <device.cuh>

KERNEL probe() {}
