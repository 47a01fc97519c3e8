// Threads: torch's own OpenMP workers where they can be had, and a barrier that spins before it yields.
#pragma once

#include <cstddef>

namespace unrolled {

// Runs body(context, id, count) on `threads` threads; count says how many there really are.
//
// torch keeps its OpenMP workers spinning between its own operations. A second set of workers would fight them for the
// same cores, so the OpenMP runtime that torch has loaded is used; without one, threads are started for the call. In
// a forked child, where OpenMP's workers are gone, there is one thread.
void parallel(int threads, void (*body)(void* context, int id, int count), void* context);

// How many threads torch would use (torch.get_num_threads()).
int thread_count();

// Which of the two `parallel` uses.
const char* parallel_runtime();

// Fresh scratch is filled with NaN (a test's way to find values that are read before they are written).
void set_scratch_nan(bool wanted);

// 64-byte aligned floats; freed with free_scratch.
float* allocate_scratch(size_t count);
void free_scratch(float* scratch);

// Lets another thread run on this core.
void yield_core();

// Tells the core that this thread polls.
[[gnu::always_inline]] inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace unrolled
