// A token for each row, drawn by a number in [0, 1) from softmax(log p / temperature), or the likeliest one. A block for
// each row; a thread owns tokens next to each other.
#include <device.cuh>

#include <arguments.h>

struct Best {
    float score;
    int token;  // −1: there is none

    DEVICE bool before(const Best& other) const {
        if (token < 0 || other.token < 0) return token >= 0;
        return score > other.score || (score == other.score && token < other.token);
    }
};

struct Row {
    const Arguments& a;
    const float* const log_probs;
    const bool early;

    DEVICE Row(const Arguments& a, int64_t row)
        : a(a), log_probs(a.log_probs + row * a.row_stride), early(a.end >= 0 && *a.written < a.min_tokens) {}

    DEVICE bool allowed(int64_t token) const {
        bool allowed = !(early && token == a.end);
        for (int i = 0; i < a.forbidden_count; i++) allowed = allowed && token != a.forbidden[i];
        return allowed;
    }

    DEVICE float scaled(int64_t token, float most) const {
        float score = log_probs[token];
        if (a.temperature == 0.0 || a.temperature == 1.0) return score;
        if (a.temperature < 0.01) score -= most;
        return score / static_cast<float>(a.temperature);
    }
};

struct Found {
    Best best;
    bool wrong;  // there is a NaN
};

// The likeliest token of the row.
DEVICE Found likeliest(const Row& row, Best* warps) {
    Best best = {0.0f, -1};
    bool wrong = false;
    for (int64_t token = thread_index(); token < row.a.vocabulary; token += THREADS) {
        const float score = row.log_probs[token];
        if (!row.allowed(token)) continue;
        wrong = wrong || score != score;
        const Best here = {score, static_cast<int>(token)};
        if (score > -1.0f / 0.0f && here.before(best)) best = here;
    }
    for (int bits = LANES / 2; bits > 0; bits /= 2) {
        const Best other = {shuffle_xor(best.score, bits), shuffle_xor(best.token, bits)};
        if (other.before(best)) best = other;
    }
    if (any_lane(wrong)) best = {0.0f, -2};  // comes after all others, and is seen below
    if (thread_index() % LANES == 0) warps[thread_index() / LANES] = best;
    sync_block();
    Found found = {warps[0], warps[0].token == -2};
    for (int warp = 1; warp < WARPS; warp++) {
        found.wrong = found.wrong || warps[warp].token == -2;
        if (warps[warp].before(found.best)) found.best = warps[warp];
    }
    return found;
}

// A token by its share of the probability: the first at which the running sum passes it. Sums have a fixed order.
DEVICE int drawn(const Row& row, const Best& best, double uniform, double* sums, int* chosen) {
    const int64_t each = (row.a.vocabulary + THREADS - 1) / THREADS, first = thread_index() * each;
    const int64_t behind = first + each < row.a.vocabulary ? first + each : row.a.vocabulary;
    const double highest = row.scaled(best.token, best.score);
    double own = 0.0;
    for (int64_t token = first; token < behind; token++)
        if (row.allowed(token)) own += exp(row.scaled(token, best.score) - highest);
    sums[thread_index()] = own;
    if (thread_index() == 0) *chosen = best.token;  // stays where rounding leaves no other
    sync_block();
    if (thread_index() == 0) {
        double all = 0.0;
#pragma unroll 16
        for (int thread = 0; thread < THREADS; thread++) sums[thread] = all += sums[thread];
    }
    sync_block();
    const double share = uniform * sums[THREADS - 1];
    double sum = thread_index() == 0 ? 0.0 : sums[thread_index() - 1];
    if (sum <= share && share < sums[thread_index()]) {
        int found = best.token;
        for (int64_t token = first; token < behind && sum <= share; token++) {
            const double part = row.allowed(token) ? exp(row.scaled(token, best.score) - highest) : 0.0;
            if (part > 0.0) found = static_cast<int>(token);
            sum += part;
        }
        *chosen = found;
    }
    sync_block();
    return *chosen;
}

KERNEL draw(KERNEL_ARGUMENT Arguments a) {
    double* const sums = reinterpret_cast<double*>(shared_memory());
    Best* const warps = reinterpret_cast<Best*>(sums + THREADS);
    int* const chosen = reinterpret_cast<int*>(warps + WARPS);
    const int64_t at = *a.slot * a.rows + block_index();
    const Row row(a, block_index());
    const Found found = likeliest(row, warps);
    int token = found.wrong ? -1 : found.best.token;
    if (token >= 0 && a.temperature > 0.0) token = drawn(row, found.best, a.uniform[at], sums, chosen);
    if (thread_index() != 0) return;
    a.drawn[at] = token;
    a.next[block_index()] = token < 0 ? 0 : token;
    a.picked[at] = row.log_probs[token < 0 ? 0 : token];
}
