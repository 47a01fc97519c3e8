#include "step/thread_pool.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>

#include "runtime/parallel.h"

namespace unrolled {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr int kMost = 8;  // the caller and seven helpers
constexpr int kMembersBits = 8;
constexpr microseconds kAwake{100};       // after a step, in case another follows
constexpr microseconds kLate{200};        // a helper that has a core is not so far behind
constexpr microseconds kLeftOut{50'000};  // whatever took its core will not be gone sooner

// A job's ticket is its number and, in the low bits, how many members it has. The other fields hold still from the
// moment the ticket is out until every part is done: whoever has claimed a part may read them.
struct alignas(64) Job {
  std::atomic<uint64_t> ticket{0};
  void (*body)(const void*, int, int) = nullptr;
  alignas(64) char context[kMostContext];
};

// The part of one member: the ticket of the last job in which it was claimed, and of the last that a helper has done.
struct alignas(64) Part {
  std::atomic<uint64_t> claimed{0}, done{0};
  bool claim(uint64_t ticket) {
    uint64_t last = claimed.load(std::memory_order_relaxed);
    return last < ticket && claimed.compare_exchange_strong(last, ticket, std::memory_order_acq_rel);
  }
};

class ThreadPool {
 public:
  void run(int members, bool long_enough, void (*body)(const void*, int, int), const void* context, size_t size) {
    if (members < 2 || busy_.exchange(true, std::memory_order_acquire)) return body(context, 0, 1);
    const Clock::time_point now = Clock::now();
    const bool quick = now - began_ < kAwake;
    began_ = now;
    if ((quick || long_enough) && now >= alone_until_) members = start(members);
    else members = 1;
    if (members < 2) {
      body(context, 0, 1);
    } else {
      const uint64_t ticket = ++jobs_ << kMembersBits | static_cast<uint64_t>(members);
      job_.body = body;
      std::memcpy(job_.context, context, size);
      job_.ticket.store(ticket);
      if (asleep_.load()) wake();
      body(context, 0, members);
      finish(ticket, members);
    }
    busy_.store(false, std::memory_order_release);
  }

 private:
  void finish(uint64_t ticket, int members) {
    bool taken[kMost] = {};
    for (int id = 1; id < members; ++id) {
      taken[id] = !parts_[id].claim(ticket);
      if (!taken[id]) job_.body(job_.context, id, members);
    }
    for (int id = 1; id < members; ++id)
      if (taken[id]) await(parts_[id], ticket);
  }

  void await(const Part& part, uint64_t ticket) {
    constexpr int kSpins = 2000;
    const auto done = [&] { return part.done.load(std::memory_order_acquire) == ticket; };
    for (int spins = 0; spins < kSpins; ++spins) {
      if (done()) return;
      pause_core();
    }
    const Clock::time_point since = Clock::now();
    while (!done()) yield_core();  // the helper may need this very core
    const Clock::time_point now = Clock::now();
    if (now - since > kLate && now - since > since - began_) alone_until_ = now + kLeftOut;
  }

  // Starts helpers until there are `members` threads, or as many as the system allows; returns their number.
  int start(int members) {
    if (members > kMost) members = kMost;
    try {
      for (; started_ < members; ++started_) std::thread([this, id = started_] { help(id); }).detach();
    } catch (const std::system_error&) {
    }
    return members < started_ ? members : started_;
  }

  void help(int id) {
    for (uint64_t last = 0;;) {
      last = next_ticket(last, parts_[id]);
      const int members = static_cast<int>(last & ((1u << kMembersBits) - 1));
      if (id >= members) continue;
      for (const char& byte : job_.context)
        if ((&byte - job_.context) % 64 == 0) __builtin_prefetch(&byte);
      if (!parts_[id].claim(last)) continue;
      alignas(64) char context[kMostContext];
      std::memcpy(context, job_.context, sizeof context);
      job_.body(context, id, members);
      parts_[id].done.store(last, std::memory_order_release);
    }
  }

  // Spins for a while, then sleeps until it is woken.
  uint64_t next_ticket(uint64_t last, const Part& part) {
    constexpr int kLooks = 16;
    for (;;) {
      const Clock::time_point since = Clock::now();
      while (Clock::now() - since < kAwake)
        for (int looks = 0; looks < kLooks; ++looks) {
          const uint64_t ticket = job_.ticket.load(std::memory_order_acquire);
          if (ticket != last) return ticket;
          __builtin_prefetch(&part, 1);  // to claim it without waiting for its line
          pause_core();
        }
      const uint32_t before = alarm_.load();
      asleep_.store(true);
      if (job_.ticket.load() == last) alarm_.wait(before);
    }
  }

  // Once for each time they fell asleep: a helper that has to wait for a core is not called again at every step.
  void wake() {
    if (!asleep_.exchange(false)) return;
    alarm_.fetch_add(1);
    alarm_.notify_all();
  }

  std::atomic<bool> busy_{false};
  Clock::time_point began_{}, alone_until_{};
  uint64_t jobs_ = 0;
  int started_ = 1;  // the caller counts
  Job job_;
  Part parts_[kMost];
  alignas(64) std::atomic<bool> asleep_{false};
  std::atomic<uint32_t> alarm_{0};
};

}  // namespace

void share(int members, bool long_enough, void (*body)(const void*, int, int), const void* context, size_t size) {
  static ThreadPool& pool = *new ThreadPool;  // never destroyed: its helpers outlive the program's last statics
  pool.run(members, long_enough, body, context, size);
}

}  // namespace unrolled
