// The cross-entropy of rows of 16-bit scores, and its gradient in their place:
//
//     loss = lse − (1 − s) score(target) − s/V Σ score,    gradient = softmax − (1 − s) [v = target] − s/V
//
// ROW_THREADS threads, a warp or a block, read a row twice: first for the sums, then for the gradient.
#include "sums.cuh"

#include <arguments.h>

struct Row {
    const Arguments& given;
    const int lane;  // of the row's threads
    const int64_t row, target;
    Words* const words;
    const int count;  // words in a row

    DEVICE Row(const Arguments& given, int64_t row, int lane)
        : given(given),
          lane(lane),
          row(row),
          target(given.tokens[row]),
          words(given.scores + row * (given.width / PACKED)),
          count(static_cast<int>(given.width / PACKED)) {}

    DEVICE bool ignored() const { return target == given.ignored; }
    // Targets are on the GPU, where nobody has checked them.
    DEVICE bool wrong() const { return target < 0 || target >= given.vocabulary; }

    DEVICE float target_score() const {
        const Words all = words[target / PACKED];
        const int place = static_cast<int>(target % PACKED);
        const uint32_t word = place < 4 ? (place < 2 ? all.x : all.y) : (place < 6 ? all.z : all.w);
        const Pair pair = NUMBER::unpack(word);
        return place % 2 ? pair.y : pair.x;
    }

    DEVICE void add_pair(Sums& sums, int64_t first, uint32_t word) const {
        const Pair pair = NUMBER::unpack(word);
        if (first < given.vocabulary) add(sums, pair.x);
        if (first + 1 < given.vocabulary) add(sums, pair.y);
    }

    DEVICE Sums read() const {
        Sums sums = no_sums();
        for (int i = lane; i < count; i += ROW_THREADS) {
            const Words all = words[i];
            const int64_t first = static_cast<int64_t>(i) * PACKED;
            add_pair(sums, first, all.x);
            add_pair(sums, first + 2, all.y);
            add_pair(sums, first + 4, all.z);
            add_pair(sums, first + 6, all.w);
        }
        return sums;
    }

    DEVICE float gradient(float score, int64_t token, float norm, float share) const {
        if (token >= given.vocabulary) return 0.0f;
        const float chance = exp_of(score - norm) - share;
        return token == target ? chance - (1.0f - static_cast<float>(given.smoothing)) : chance;
    }

    DEVICE uint32_t gradient(uint32_t word, int64_t first, float norm, float share) const {
        const Pair pair = NUMBER::unpack(word);
        return NUMBER::pack(gradient(pair.x, first, norm, share), gradient(pair.y, first + 1, norm, share));
    }

    DEVICE void write(float norm, float share) const {
        for (int i = lane; i < count; i += ROW_THREADS) {
            const Words all = words[i];
            const int64_t first = static_cast<int64_t>(i) * PACKED;
            words[i] = {gradient(all.x, first, norm, share), gradient(all.y, first + 2, norm, share),
                        gradient(all.z, first + 4, norm, share), gradient(all.w, first + 6, norm, share)};
        }
    }

    DEVICE void clear() const {
        for (int i = lane; i < count; i += ROW_THREADS) words[i] = {0, 0, 0, 0};
    }
};

DEVICE Sums summed(Sums sums) {
    return ROW_THREADS == LANES ? over_warp(sums) : over_block(sums, reinterpret_cast<Sums*>(shared_memory()));
}

// Blocks: THREADS / ROW_THREADS rows each. Shared memory: the sums of each warp.
KERNEL cross_entropy(KERNEL_ARGUMENT Arguments given) {
    static_assert(sizeof(Sums) == 4 * PARTIAL, "constants.py and the kernels disagree");
    const int64_t index = static_cast<int64_t>(block_index()) * (THREADS / ROW_THREADS) + thread_index() / ROW_THREADS;
    if (index >= given.rows) return;
    const Row row(given, index, thread_index() % ROW_THREADS);
    if (row.ignored() || row.wrong()) {
        if (row.lane == 0) given.losses[index] = row.ignored() ? 0.0f : 0.0f / 0.0f;
        if (given.with_gradient) row.clear();
        return;
    }
    const float score = row.target_score();  // before a gradient takes its place
    const Sums sums = summed(row.read());
    const float smoothing = static_cast<float>(given.smoothing), share = smoothing / static_cast<float>(given.vocabulary);
    const float norm = sums.norm();
    if (row.lane == 0) given.losses[index] = norm - (1.0f - smoothing) * score - share * sums.scores;
    if (given.with_gradient) row.write(norm, share);
}
