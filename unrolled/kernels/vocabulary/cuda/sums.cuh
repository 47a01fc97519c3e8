// The sums of a row of scores, over all threads that read it.
#pragma once

#include <device.cuh>

struct Sums {
    float most;    // the maximum
    float powers;  // Σ exp(score − most)
    float scores;  // Σ score

    DEVICE float norm() const { return most + 0.69314718f * log2f(powers); }  // log Σ exp(score)
};

DEVICE Sums no_sums() { return {-1.0f / 0.0f, 0.0f, 0.0f}; }

DEVICE float lowered(float most, float highest) { return most < highest ? exp_of(most - highest) : 1.0f; }

DEVICE void add(Sums& sums, float score) {
    const float most = fmaxf(sums.most, score);
    sums.powers = sums.powers * lowered(sums.most, most) + exp_of(score - most);
    sums.most = most;
    sums.scores += score;
}

DEVICE Sums merged(const Sums& a, const Sums& b) {
    const float most = fmaxf(a.most, b.most);
    return {most, a.powers * lowered(a.most, most) + b.powers * lowered(b.most, most), a.scores + b.scores};
}

// The sums of a warp, in an order that does not depend on the speed of its threads.
DEVICE Sums over_warp(Sums sums) {
    for (int bits = LANES / 2; bits > 0; bits /= 2) {
        const Sums other = {shuffle_xor(sums.most, bits), shuffle_xor(sums.powers, bits), shuffle_xor(sums.scores, bits)};
        sums = merged(sums, other);
    }
    return sums;
}

// The sums of a block; `parts` has a place for each warp.
DEVICE Sums over_block(Sums sums, Sums* parts) {
    sums = over_warp(sums);
    if (thread_index() % LANES == 0) parts[thread_index() / LANES] = sums;
    sync_block();
    sums = parts[0];
    for (int warp = 1; warp < WARPS; warp++) sums = merged(sums, parts[warp]);
    return sums;
}
