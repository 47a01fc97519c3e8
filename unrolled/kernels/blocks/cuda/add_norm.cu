// x + added, and the layer norm of the sum. A warp for each row, which it reads three times; two numbers to a lane.
#include "numbers.cuh"

DEVICE float over_warp(float number) {
    for (int bits = LANES / 2; bits > 0; bits /= 2) number += shuffle_xor(number, bits);
    return number;
}

// Blocks: a warp for each row.
KERNEL add_norm(KERNEL_ARGUMENT Arguments a) {
    const int64_t row = static_cast<int64_t>(block_index()) * WARPS + thread_index() / LANES;
    if (row >= a.rows) return;
    const int64_t first = 2 * (thread_index() % LANES);
    const float* const x = a.x + row * a.size;
    float* const sums = a.sum + row * a.size;
    const float each = 1.0f / static_cast<float>(a.size);
    float sum = 0.0f;
    for (int64_t at = first; at < a.size; at += 2 * LANES) {
        Pair pair = *reinterpret_cast<const Pair*>(x + at);
        if (a.added != nullptr) {
            const Pair added = Vector<NUMBER>::pair(a.added, row * a.size + at);
            pair = {pair.x + added.x, pair.y + added.y};
        }
        *reinterpret_cast<Pair*>(sums + at) = pair;
        sum += pair.x + pair.y;
    }
    const float mean = over_warp(sum) * each;
    float squares = 0.0f;
    for (int64_t at = first; at < a.size; at += 2 * LANES) {
        const Pair pair = *reinterpret_cast<const Pair*>(sums + at);
        squares += (pair.x - mean) * (pair.x - mean) + (pair.y - mean) * (pair.y - mean);
    }
    const float factor = 1.0f / sqrtf(over_warp(squares) * each + static_cast<float>(a.eps));
    for (int64_t at = first; at < a.size; at += 2 * LANES) {
        const Pair pair = *reinterpret_cast<const Pair*>(sums + at);
        const Pair weight = *reinterpret_cast<const Pair*>(a.weight + at), bias = *reinterpret_cast<const Pair*>(a.bias + at);
        const Pair normed = {(pair.x - mean) * factor * weight.x + bias.x, (pair.y - mean) * factor * weight.y + bias.y};
        if (a.after) *reinterpret_cast<Pair*>(sums + at) = normed;
        Vector<NUMBER>::put(a.normed, row * a.size + at, normed);
    }
}
