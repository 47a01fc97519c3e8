#include "parallel.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

namespace unrolled {
namespace {

using ParallelFunction = void (*)(void (*)(void*), void*, unsigned, unsigned);
using CountFunction = int (*)();

struct OpenMP {
  ParallelFunction parallel;
  CountFunction thread, count;
  OpenMP()
      : parallel(reinterpret_cast<ParallelFunction>(dlsym(RTLD_DEFAULT, "GOMP_parallel"))),
        thread(reinterpret_cast<CountFunction>(dlsym(RTLD_DEFAULT, "omp_get_thread_num"))),
        count(reinterpret_cast<CountFunction>(dlsym(RTLD_DEFAULT, "omp_get_num_threads"))) {
    pthread_atfork(nullptr, nullptr, [] { forked = true; });
  }
  bool found() const { return parallel && thread && count; }
  static inline bool forked = false;
};

const OpenMP& openmp() {
  static const OpenMP found;
  return found;
}

struct Body {
  void (*function)(void*, int, int);
  void* context;
};

bool scratch_nan = false;

}  // namespace

void parallel(int threads, void (*function)(void*, int, int), void* context) {
  const OpenMP& omp = openmp();
  if (threads <= 1 || OpenMP::forked) return function(context, 0, 1);
  if (omp.found()) {
    Body body{function, context};
    omp.parallel(
        [](void* data) {
          const Body& b = *static_cast<Body*>(data);
          b.function(b.context, openmp().thread(), openmp().count());
        },
        &body, static_cast<unsigned>(threads), 0);
    return;
  }
  std::vector<std::thread> others;
  for (int id = 1; id < threads; ++id) others.emplace_back(function, context, id, threads);
  function(context, 0, threads);
  for (std::thread& other : others) other.join();
}

const char* parallel_runtime() { return openmp().found() ? "torch's OpenMP" : "own threads"; }

void set_scratch_nan(bool wanted) { scratch_nan = wanted; }

float* allocate_scratch(unsigned long count) {
  auto* scratch = static_cast<float*>(::operator new(count * sizeof(float), std::align_val_t{64}));
  if (scratch_nan)
    for (unsigned long i = 0; i < count; ++i) scratch[i] = NAN;
  return scratch;
}

void free_scratch(float* scratch) { ::operator delete(scratch, std::align_val_t{64}); }

void yield_core() { std::this_thread::yield(); }

long cache_bytes() {
  long found = -1;
#ifdef _SC_LEVEL2_CACHE_SIZE
  found = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
  return found > 0 ? found : 512 * 1024;
}

}  // namespace unrolled
