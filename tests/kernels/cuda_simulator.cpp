// Runs the threads of all blocks on the CPU, each as a fiber.
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <vector>

#include <device.cuh>

namespace simulator {

struct Fiber : Thread {
    jmp_buf place;  // unlike swapcontext, setjmp makes no system call
    bool begun = false;
    std::unique_ptr<uint8_t[]> stack;
};

Block* blocks;
Barrier* clusters;
int cluster_size;
Thread* now;
uint64_t progress, failures;

static jmp_buf scheduler;
static void (*run_kernel)();

void yield() {
    if (_setjmp(static_cast<Fiber*>(now)->place) == 0) _longjmp(scheduler, 1);
}

static void run_fiber() {
    run_kernel();
    now->done = true;
    progress++;
    yield();
}

static void resume(Fiber& fiber) {
    constexpr size_t STACK = 32 * 1024;
    now = &fiber;
    if (_setjmp(scheduler) != 0) return;
    if (fiber.begun) _longjmp(fiber.place, 1);
    fiber.begun = true;
    fiber.stack.reset(new uint8_t[STACK]);
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fiber.stack.get();
    context.uc_stack.ss_size = STACK;
    context.uc_link = nullptr;
    makecontext(&context, run_fiber, 0);
    setcontext(&context);
}

// Random numbers (xorshift): below a limit, of the same seed the same.
struct Random {
    uint32_t state;
    uint32_t below(uint32_t limit) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        return static_cast<uint32_t>(static_cast<uint64_t>(state) * limit >> 32);
    }
};

// 0, or the error: 1 a kernel trapped, 2 all threads wait for ever, 3 shared memory was written past its end.
int run(void (*kernel)(), int count, int cluster, int shared_bytes, unsigned seed) {
    constexpr size_t GUARD = 64;
    Random random{seed * 2654435769u + 1};
    std::vector<Block> all_blocks(count);
    std::vector<Barrier> all_clusters(count / cluster);
    std::vector<uint8_t> memory(count * (shared_bytes + GUARD), 0xff);  // NaN
    for (int i = 0; i < count; i++) all_blocks[i].memory = &memory[i * (shared_bytes + GUARD)];
    blocks = all_blocks.data();
    clusters = all_clusters.data();
    cluster_size = cluster;
    run_kernel = kernel;
    std::vector<Fiber> fibers(static_cast<size_t>(count) * THREADS);
    std::vector<Fiber*> order;
    for (size_t i = 0; i < fibers.size(); i++) {
        fibers[i].thread = static_cast<int>(i % THREADS);
        fibers[i].block = static_cast<int>(i / THREADS);
        order.push_back(&fibers[i]);
    }
    progress = failures = 0;
    // Warps run at unequal speeds: now and then one sleeps while the others go on, as far as they can without it.
    std::vector<int> sleeps(fibers.size() / LANES);
    for (int idle = 0; !order.empty() && failures == 0; idle++) {
        const uint64_t before = progress;
        for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[random.below(i)]);
        for (auto& sleep : sleeps) sleep = sleep > 0 ? sleep - 1 : random.below(16) == 0 ? random.below(40) : 0;
        for (Fiber* fiber : order) {
            if (sleeps[(fiber->block * THREADS + fiber->thread) / LANES] > 0) continue;
            if (fiber->waits != nullptr && fiber->waits->round == fiber->round) continue;
            fiber->waits = nullptr;
            resume(*fiber);
        }
        std::erase_if(order, [](const Fiber* fiber) { return fiber->done; });
        if (progress != before) idle = 0;
        if (idle > 1000) return 2;
    }
    if (failures != 0) return 1;
    for (const Block& block : all_blocks)
        if (std::any_of(block.memory + shared_bytes, block.memory + shared_bytes + GUARD, [](uint8_t b) { return b != 0xff; }))
            return 3;
    return 0;
}

}  // namespace simulator
