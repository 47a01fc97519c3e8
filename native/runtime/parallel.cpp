#include "runtime/parallel.h"

#include <cmath>
#include <cstdlib>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/platform.h"

namespace unrolled {
namespace {

using ParallelFunction = void (*)(void (*)(void*), void*, unsigned, unsigned);
using CountFunction = int (*)();

struct OpenMP {
  ParallelFunction parallel;
  CountFunction thread, count, most;
  OpenMP()
      : parallel(reinterpret_cast<ParallelFunction>(loaded_symbol("GOMP_parallel"))),
        thread(reinterpret_cast<CountFunction>(loaded_symbol("omp_get_thread_num"))),
        count(reinterpret_cast<CountFunction>(loaded_symbol("omp_get_num_threads"))),
        most(reinterpret_cast<CountFunction>(loaded_symbol("omp_get_max_threads"))) {
    in_forked_child([] { forked = true; });
  }
  bool found() const { return parallel && thread && count && most; }
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

struct Block {
  float* start = nullptr;
  size_t size = 0;
};

constexpr size_t kHeader = 16;             // floats before a block: one cache line
constexpr size_t kKeptBytes = 64u << 20;  // larger blocks go back to the system

struct Store {
  std::mutex mutex;
  Block blocks[3];
  // A child may be born while another thread holds the lock; it begins with a fresh one.
  Store() {
    in_forked_child([] { new (&Store::store.mutex) std::mutex; });
  }
  static Store store;
};
Store Store::store;
Store& store = Store::store;

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

int thread_count() {
  static const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return openmp().found() ? openmp().most() : cores;
}

const char* parallel_runtime() { return openmp().found() ? "torch's OpenMP" : "own threads"; }

void set_scratch_nan(bool wanted) { scratch_nan = wanted; }

// A few blocks are kept for the next call: fresh memory costs a page fault every 4 KB.
float* allocate_scratch(size_t count) {
  Block block;
  {
    const std::lock_guard<std::mutex> guard(store.mutex);
    for (Block& kept : store.blocks)
      if (kept.start && kept.size >= count && kept.size <= 4 * count + 65536) {
        block = kept;
        kept = {};
        break;
      }
  }
  if (!block.start) {
    // the size stands before the floats, so that the block can be given back by its address alone
    block.size = count;
    auto* start = static_cast<float*>(::operator new((count + kHeader) * sizeof(float), std::align_val_t{64}));
    *reinterpret_cast<size_t*>(start) = count;
    block.start = start + kHeader;
  }
  if (scratch_nan)
    for (size_t i = 0; i < count; ++i) block.start[i] = NAN;
  return block.start;
}

void free_scratch(float* scratch) {
  Block block{scratch, *reinterpret_cast<size_t*>(scratch - kHeader)};
  if (block.size * sizeof(float) <= kKeptBytes) {
    const std::lock_guard<std::mutex> guard(store.mutex);
    for (Block& kept : store.blocks)
      if (kept.size < block.size) std::swap(kept, block);
  }
  if (block.start) ::operator delete(block.start - kHeader, std::align_val_t{64});
}

void yield_core() { std::this_thread::yield(); }

}  // namespace unrolled
