// Runs a kernel of KERNEL_SOURCE on the CPU: `launch(which, arguments, blocks, cluster size, shared bytes, seed)`.
#include <device.cuh>

#include <algorithm>

#include KERNEL_SOURCE

namespace simulator {

inline void run_fiber() {
    kernel(*arguments);
    now->done = true;
    progress++;
    yield();
}

// 0, or the error: 1 a kernel trapped, 2 all threads wait for ever, 3 shared memory was written past its end.
int run(int count, int shared_bytes, unsigned seed) {
    constexpr size_t STACK = 32 * 1024, GUARD = 64;
    std::mt19937 drawn(seed);
    blocks = std::vector<Block>(count);
    for (auto& block : blocks) block.memory.assign(shared_bytes + GUARD, 0xff);  // NaN
    fibers = std::vector<Fiber>(static_cast<size_t>(count) * THREADS);
    std::vector<Fiber*> order;
    for (size_t i = 0; i < fibers.size(); i++) {
        Fiber& fiber = fibers[i];
        fiber.thread = static_cast<int>(i % THREADS);
        fiber.block = static_cast<int>(i / THREADS);
        fiber.stack.reset(new uint8_t[STACK]);
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = STACK;
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, reinterpret_cast<void (*)()>(run_fiber), 0);
        order.push_back(&fiber);
    }
    progress = failures = 0;
    // Warps run at unequal speeds: now and then one sleeps while the others go on, as far as they can without it.
    std::vector<int> sleeps(fibers.size() / LANES);
    for (int idle = 0; !order.empty() && failures == 0; idle++) {
        const uint64_t before = progress;
        std::shuffle(order.begin(), order.end(), drawn);
        for (auto& sleep : sleeps) sleep = sleep > 0 ? sleep - 1 : drawn() % 16 == 0 ? static_cast<int>(drawn() % 40) : 0;
        for (Fiber* fiber : order) {
            if (sleeps[(fiber->block * THREADS + fiber->thread) / LANES] > 0) continue;
            now = fiber;
            swapcontext(&scheduler, &fiber->context);
        }
        std::erase_if(order, [](const Fiber* fiber) { return fiber->done; });
        if (progress != before) idle = 0;
        if (idle > 1000) return 2;
    }
    if (failures != 0) return 1;
    for (const auto& block : blocks)
        for (size_t i = 0; i < GUARD; i++)
            if (block.memory[shared_bytes + i] != 0xff) return 3;
    return 0;
}

}  // namespace simulator

extern "C" int launch([[maybe_unused]] int which, const Arguments* given, int count, int cluster, int shared_bytes, unsigned seed) {
    simulator::cluster_size = cluster;
    simulator::clusters = std::vector<simulator::Cluster>(count / cluster);
    simulator::arguments = given;
#ifdef ROWS
    simulator::kernel = single_step;
#else
    simulator::kernel = which == 0 ? forward : backward;
#endif
    return simulator::run(count, shared_bytes, seed);
}

#ifndef ROWS
// The size of the shared memory that the kernels lay out.
extern "C" int shared_bytes(int which, int chunk_rows, int chunks) {
    return which == 0 ? ForwardShared::bytes(chunk_rows, chunks) : BackwardShared::bytes(chunk_rows, chunks);
}
#endif
