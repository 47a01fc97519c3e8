// A kernel that does nothing: how many of its clusters a GPU runs at once is how many of any other that fills its blocks.
#include <device.cuh>

KERNEL probe() {}
