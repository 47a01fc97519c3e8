// How threads share a scan, and the barrier between its phases.
//
// Sequences do not depend on each other: groups of threads take a part of the batch each and never meet. Inside a group
// the members share the units, so that each core's part of U stays in its own cache, and meet at every step.
#pragma once

#include "runtime/parallel.h"
#include "runtime/vec.h"

namespace unrolled::UNROLLED_NAMESPACE {

// Spins, for the others are microseconds away; yields when they are not, since they may need this very core.
class Barrier {
 public:
  void wait(int members) {
    if (members == 1) return;
    const int phase = __atomic_load_n(&phase_, __ATOMIC_RELAXED);
    if (__atomic_add_fetch(&arrived_, 1, __ATOMIC_ACQ_REL) == members) {
      __atomic_store_n(&arrived_, 0, __ATOMIC_RELAXED);
      __atomic_store_n(&phase_, phase + 1, __ATOMIC_RELEASE);
      return;
    }
    for (int spins = 0; __atomic_load_n(&phase_, __ATOMIC_ACQUIRE) == phase; ++spins) {
      if (spins < kSpins) pause_core();
      else yield_core();
    }
  }

 private:
  static constexpr int kSpins = 4000;
  alignas(64) int arrived_ = 0;
  alignas(64) int phase_ = 0;
};

struct Plan {
  int groups = 1, members = 1;
  int threads() const { return groups * members; }
};

// Groups of some rows each; with few sequences, members that share the units.
static Plan make_plan(int threads, int batch, int panels, double step_flops, int steps) {
  constexpr double kWorthAThread = 1e6;  // below this much work, waking a thread costs more than it brings
  constexpr double kWorthABarrier = 2e5;
  constexpr int kRows = 6;  // fewer rows than this in a group waste the product's registers
  if (threads <= 1 || step_flops * steps < kWorthAThread) return {};
  Plan plan;
  for (int groups = 1; groups <= threads; ++groups)
    if (threads % groups == 0 && groups * kRows <= batch) plan.groups = groups;
  const int members = threads / plan.groups;
  if (step_flops / plan.groups >= kWorthABarrier) plan.members = members < panels ? members : panels;
  if (plan.members == 1 && plan.groups < threads) plan.groups = threads < batch ? threads : batch;
  return plan;
}

// Takes aligned pieces of one allocation; with no memory behind it, it only measures.
class Arena {
 public:
  explicit Arena(float* start) : start_(start) {}
  float* take(size_t count) {
    float* piece = start_ ? start_ + used_ : nullptr;
    used_ += (count + 15) / 16 * 16 + 16;  // a gap: full vectors may read past the end
    return piece;
  }
  size_t used() const { return used_; }

 private:
  float* start_;
  size_t used_ = 0;
};

// A thread's barriers and memory.
struct Workspace {
  int id;
  Barrier* everyone;
  Barrier* of_group;
  Arena shared, group, own;  // one for all threads, one for a group, one for a thread
};

// Runs body(workspace) on every thread of a plan, with scratch of the sizes given. False, without a run, if fewer
// threads than planned were available.
template <class Body>
static bool launch(Plan plan, size_t shared, size_t of_group, size_t own, Body& body) {
  struct Context {
    Plan plan;
    size_t shared, of_group, own;
    float* memory;
    Barrier* barriers;  // [0] everyone's, then one for each group
    Body& body;
    bool complete;
  };
  float* memory = allocate_scratch(shared + plan.groups * of_group + plan.threads() * own);
  auto* barriers = new Barrier[1 + plan.groups];
  Context context{plan, shared, of_group, own, memory, barriers, body, true};
  parallel(
      plan.threads(),
      [](void* data, int id, int count) {
        Context& c = *static_cast<Context*>(data);
        if (count != c.plan.threads()) {
          if (id == 0) c.complete = false;
          return;
        }
        const int group = id / c.plan.members;
        float *groups = c.memory + c.shared, *threads = groups + c.plan.groups * c.of_group;
        c.body(Workspace{id, &c.barriers[0], &c.barriers[1 + group], Arena(c.memory), Arena(groups + group * c.of_group),
                         Arena(threads + id * c.own)});
      },
      &context);
  delete[] barriers;
  free_scratch(memory);
  return context.complete;
}

}  // namespace unrolled::UNROLLED_NAMESPACE
