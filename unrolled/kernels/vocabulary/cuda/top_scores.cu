// The `count` highest log-probabilities of a row that are not blocked, and their tokens; of equal ones the lower token
// comes first. A block for each row: every thread keeps the best of its own tokens; the best of the block is written,
// and its thread looks for its next one.
#include "sums.cuh"

#include <arguments.h>

struct Best {
    float score;
    int token;  // −1: there is none

    DEVICE bool before(const Best& other) const {
        if (token < 0 || other.token < 0) return token >= 0;
        return score > other.score || (score == other.score && token < other.token);
    }
};

DEVICE float number_at(const float* row, int64_t at) { return row[at]; }
DEVICE float number_at(const uint16_t* row, int64_t at) { return NUMBER::unpack(row[at]).x; }

struct Row {
    const SCORE* const scores;
    const uint8_t* const blocked;
    const int64_t vocabulary;

    DEVICE Row(const Arguments& given, int row)
        : scores(reinterpret_cast<const SCORE*>(given.scores) + row * given.row_stride),
          blocked(given.blocked == nullptr ? nullptr : given.blocked + row * given.blocked_stride),
          vocabulary(given.vocabulary) {}

    DEVICE Sums sums() const {
        Sums sums = no_sums();
        for (int64_t token = thread_index(); token < vocabulary; token += THREADS) add(sums, number_at(scores, token));
        return sums;
    }

    // The best of this thread's tokens that come after `last`; without a last one, of all.
    DEVICE Best next(const Best& last) const {
        Best best = {0.0f, -1};
        for (int64_t token = thread_index(); token < vocabulary; token += THREADS) {
            if (blocked != nullptr && blocked[token]) continue;
            const Best here = {number_at(scores, token), static_cast<int>(token)};
            if ((last.token < 0 || last.before(here)) && here.before(best)) best = here;
        }
        return best;
    }
};

DEVICE Best best_of_warp(Best best) {
    for (int bits = LANES / 2; bits > 0; bits /= 2) {
        const Best other = {shuffle_xor(best.score, bits), shuffle_xor(best.token, bits)};
        if (other.before(best)) best = other;
    }
    return best;
}

// Blocks: one for each row. Shared memory: sums of each warp, then the best of each.
KERNEL top_scores(KERNEL_ARGUMENT Arguments given) {
    Sums* const parts = reinterpret_cast<Sums*>(shared_memory());
    Best* const bests = reinterpret_cast<Best*>(parts + WARPS);
    const int row = block_index();
    const Row scores(given, row);
    const Sums sums = over_block(scores.sums(), parts);
    // a NaN among the scores makes all of them NaN; −inf everywhere stays that
    const bool wrong = sums.powers != sums.powers && sums.most > -1.0f / 0.0f;
    const float norm = wrong ? 0.0f / 0.0f : given.normalised ? 0.0f : sums.norm();
    if (thread_index() == 0) given.norms[row] = norm;
    Best mine = scores.next({0.0f, -1});
    for (int64_t i = 0; i < given.count; i++) {
        const Best warps = best_of_warp(mine);
        if (thread_index() % LANES == 0) bests[thread_index() / LANES] = warps;
        sync_block();
        Best best = bests[0];
        for (int warp = 1; warp < WARPS; warp++) {
            if (bests[warp].before(best)) best = bests[warp];
        }
        if (thread_index() == 0) {
            given.values[row * given.count + i] = best.token < 0 ? -1.0f / 0.0f : best.score - norm;
            given.chosen[row * given.count + i] = best.token < 0 ? 0 : best.token;
        }
        if (best.token >= 0 && best.token % THREADS == thread_index()) mine = scores.next(mine);
        sync_block();
    }
}
