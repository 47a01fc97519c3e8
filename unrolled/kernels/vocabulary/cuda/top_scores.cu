// The `count` highest log-probabilities of a row that are not blocked, and their tokens; of equal ones the lower token
// comes first. A block for each row reads it twice. First every group of GROUP threads finds the best of its tokens: the
// count-th best of the groups is a bound that at least `count` tokens reach. The second time those that do are collected,
// a few more than `count`, and ranked. If there are too many of them, the best is taken `count` times.
#include "sums.cuh"

#include <arguments.h>

// A score and its token as one number: of two, the larger comes first. 0: there is none.
DEVICE uint64_t key_of(float score, int token) {
    const uint32_t bits = bits_of(score + 0.0f);  // −0 is 0
    const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return static_cast<uint64_t>(ordered) << 32 | (0xffffffffu - static_cast<uint32_t>(token));
}
DEVICE float score_of(uint64_t key) {
    const uint32_t ordered = static_cast<uint32_t>(key >> 32);
    return float_of(ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered);
}
DEVICE int64_t token_of(uint64_t key) { return 0xffffffffu - static_cast<uint32_t>(key); }

DEVICE uint64_t best_of_lanes(uint64_t key, int lanes) {
    for (int bits = lanes / 2; bits > 0; bits /= 2) {
        const uint32_t high = shuffle_xor(static_cast<int>(key >> 32), bits);
        const uint32_t low = shuffle_xor(static_cast<int>(key), bits);
        const uint64_t other = static_cast<uint64_t>(high) << 32 | low;
        if (other > key) key = other;
    }
    return key;
}

DEVICE float number_at(const float* row, int at) { return row[at]; }
DEVICE float number_at(const uint16_t* row, int at) { return NUMBER::unpack(row[at]).x; }
template <typename Call>
DEVICE void each_of(const float*, const Words& words, int at, Call call) {
    call(at, float_of(words.x));
    call(at + 1, float_of(words.y));
    call(at + 2, float_of(words.z));
    call(at + 3, float_of(words.w));
}
template <typename Call>
DEVICE void each_of(const uint16_t*, const Words& words, int at, Call call) {
    const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const Pair pair = NUMBER::unpack(pairs[i]);
        call(at + 2 * i, pair.x);
        call(at + 2 * i + 1, pair.y);
    }
}

struct Row {
    static constexpr int TOGETHER = sizeof(Words) / sizeof(SCORE);
    const SCORE* const scores;
    const uint8_t* const blocked;
    const int vocabulary;
    int whole;      // groups of TOGETHER scores that can be loaded at once
    Words held[HELD];  // the first groups of this thread: they are loaded once

    DEVICE Row(const Arguments& given, int row)
        : scores(reinterpret_cast<const SCORE*>(given.scores) + row * given.row_stride),
          blocked(given.blocked == nullptr ? nullptr : given.blocked + row * given.blocked_stride),
          vocabulary(static_cast<int>(given.vocabulary)) {
        whole = reinterpret_cast<uint64_t>(scores) % sizeof(Words) == 0 ? vocabulary / TOGETHER : 0;
#pragma unroll
        for (int i = 0; i < HELD; i++)
            if (group(i) < whole) held[i] = load(group(i));
    }

    DEVICE int group(int i) const { return thread_index() + i * THREADS; }
    DEVICE Words load(int group) const { return *reinterpret_cast<const Words*>(scores + group * TOGETHER); }

    DEVICE bool allows(int token) const { return blocked == nullptr || !blocked[token]; }

    // Calls for each of this thread's tokens and its score.
    template <typename Call>
    DEVICE void each(Call call) const {
#pragma unroll
        for (int i = 0; i < HELD; i++)
            if (group(i) < whole) each_of(scores, held[i], group(i) * TOGETHER, call);
        for (int at = group(HELD); at < whole; at += THREADS) each_of(scores, load(at), at * TOGETHER, call);
        for (int token = whole * TOGETHER + thread_index(); token < vocabulary; token += THREADS)
            call(token, number_at(scores, token));
    }

    // The best of this thread's tokens that come after `last`.
    DEVICE uint64_t next(uint64_t last) const {
        uint64_t best = 0;
        each([&](int token, float score) {
            const uint64_t key = key_of(score, token);
            if (key > best && key < last && allows(token)) best = key;
        });
        return best;
    }
};

struct Shared {
    Sums parts[WARPS];
    uint64_t groups[GROUPS];
    uint64_t found[MOST_FOUND];
    uint64_t bests[WARPS];
    uint64_t bound;
    int count;
};

struct Output {
    const Arguments& given;
    const int64_t row;
    const float norm;

    DEVICE void put(int64_t place, uint64_t key) const {
        given.values[row * given.count + place] = key > 0 ? score_of(key) - norm : norm != norm ? norm : -1.0f / 0.0f;
        given.chosen[row * given.count + place] = key == 0 ? 0 : token_of(key);
    }
};

// The bound: the count-th best of the groups, 0 if fewer have a token.
DEVICE void bound(uint64_t mine, int64_t count, Shared& shared) {
    const uint64_t best = best_of_lanes(mine, GROUP);
    if (thread_index() % GROUP == 0) shared.groups[thread_index() / GROUP] = best;
    if (thread_index() == 0) {
        shared.bound = 0;
        shared.count = 0;
    }
    sync_block();
    if (thread_index() < GROUPS) {
        const uint64_t own = shared.groups[thread_index()];
        int place = 0;
        for (int group = 0; group < GROUPS; group++) place += shared.groups[group] > own;
        if (own > 0 && place == count - 1) shared.bound = own;
    }
    sync_block();
}

DEVICE void rank_found(const Output& output, const Shared& shared) {
    for (int i = thread_index(); i < shared.count; i += THREADS) {
        int place = 0;
        for (int other = 0; other < shared.count; other++) place += shared.found[other] > shared.found[i];
        if (place < output.given.count) output.put(place, shared.found[i]);
    }
    for (int64_t i = shared.count + thread_index(); i < output.given.count; i += THREADS) output.put(i, 0);
}

DEVICE void take_in_turn(const Output& output, const Row& row, Shared& shared) {
    uint64_t mine = row.next(~0ull);
    for (int64_t i = 0; i < output.given.count; i++) {
        const uint64_t warps = best_of_lanes(mine, LANES);
        if (thread_index() % LANES == 0) shared.bests[thread_index() / LANES] = warps;
        sync_block();
        uint64_t best = shared.bests[0];
        for (int warp = 1; warp < WARPS; warp++) best = shared.bests[warp] > best ? shared.bests[warp] : best;
        if (thread_index() == 0) output.put(i, best);
        if (best > 0 && best == mine) mine = row.next(mine);
        sync_block();
    }
}

// Blocks: one for each row.
KERNEL top_scores(KERNEL_ARGUMENT Arguments given) {
    Shared& shared = *reinterpret_cast<Shared*>(shared_memory());
    const int row = block_index();
    const Row scores(given, row);
    float highest = -1.0f / 0.0f, best = highest;
    int at = -1;
    scores.each([&](int token, float score) {  // in the order of the tokens
        highest = fmaxf(highest, score);
        at = score > best ? token : at;
        best = score > best ? score : best;
    });
    uint64_t mine = at < 0 ? 0 : key_of(best, at);
    if (at >= 0 && !scores.allows(at)) mine = scores.next(mine);  // rarely: masks were not looked at so far
    const float most = over_block({highest, 0.0f, 0.0f}, shared.parts).most;
    bound(mine, given.count, shared);  // which waits until all have read the parts
    const uint64_t least = shared.bound;
    const float lowest = least == 0 ? -1.0f / 0.0f : score_of(least);
    const float base = most > -1.0f / 0.0f ? most : 0.0f;
    float powers = 0.0f;
    scores.each([&](int token, float score) {
        powers += given.normalised ? (score != score ? score : 0.0f) : exp_of(score - base);
        if (!(score >= lowest) || key_of(score, token) < least || !scores.allows(token)) return;
        const int place = claim(&shared.count);
        if (place < MOST_FOUND) shared.found[place] = key_of(score, token);
    });
    const Sums total = over_block({most, powers, 0.0f}, shared.parts);
    const bool wrong = total.powers != total.powers;  // a NaN among the scores makes all of them NaN
    const float norm = wrong ? 0.0f / 0.0f : given.normalised ? 0.0f : total.norm();
    const Output output = {given, row, norm};
    if (thread_index() == 0) {
        given.norms[row] = norm;
        if (given.endings != nullptr) {
            const bool allowed = scores.allows(static_cast<int>(given.ending));
            given.endings[row] = allowed ? number_at(scores.scores, static_cast<int>(given.ending)) - norm : -1.0f / 0.0f;
        }
    }
    if (shared.count <= MOST_FOUND)
        rank_found(output, shared);
    else
        take_in_turn(output, scores, shared);
}
