// Queries that are all known look at their memories, forward only: the hypotheses of a search, which share one memory.
#pragma once

#include <atomic>

#include "attention/look.h"
#include "runtime/parallel.h"

namespace unrolled::UNROLLED_NAMESPACE {

// query_rows (B, T, A) → weights (B, T, S) and looked (B, T, V): T queries for each of B memories.
static void look_at_memories(const AttentionJob& job, int threads) {
  struct Context {
    const AttentionJob& job;
    std::atomic<int> next{0};
  } context{job};
  parallel(job.batch < threads ? job.batch : threads, [](void* data, int, int) {
    auto& shared = *static_cast<Context*>(data);
    const AttentionJob& job = shared.job;
    float* scratch = allocate_scratch(2 * job.positions + kLanes);
    int* real = reinterpret_cast<int*>(scratch + job.positions + kLanes);
    for (int b; (b = shared.next.fetch_add(1)) < job.batch;) {
      const size_t first = static_cast<size_t>(b) * job.positions;
      MemoryRows memory{job.keys + first * job.key_size, job.values + first * job.value_size, real, 0};
      for (int s = 0; s < job.positions; ++s)
        if (!job.mask || job.mask[first + s]) real[memory.count++] = s;
      for (size_t row = static_cast<size_t>(b) * job.steps; row < static_cast<size_t>(b + 1) * job.steps; ++row)
        look(job, memory, job.query_rows + row * job.key_size, scratch, job.weights + row * job.positions, nullptr,
             job.looked + row * job.value_size);
    }
    free_scratch(scratch);
  }, &context);
}

}  // namespace unrolled::UNROLLED_NAMESPACE
