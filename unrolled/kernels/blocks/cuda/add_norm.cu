// x + added, and the layer norm of the sum. A warp for each row, two numbers to a lane; long rows are read
// three times, of others a lane keeps its numbers.
#include "numbers.cuh"

DEVICE float over_warp(float number) {
    for (int bits = LANES / 2; bits > 0; bits /= 2) number += shuffle_xor(number, bits);
    return number;
}

struct Row {
    const Arguments& a;
    const int64_t row;
    Pair held[HELD];

    DEVICE float* sums() const { return a.sum + row * a.size; }
    DEVICE int64_t place(int i) const { return 2 * (thread_index() % LANES) + 2 * LANES * i; }

    DEVICE Pair added(int64_t at) const {
        const Pair x = *reinterpret_cast<const Pair*>(a.x + row * a.size + at);
        if (a.added == nullptr) return x;
        const Pair more = Vector<NUMBER>::pair(a.added, row * a.size + at);
        return {x.x + more.x, x.y + more.y};
    }

    // Calls for each of this lane's pairs of sums.
    template <typename Call>
    DEVICE void each(Call call) const {
#pragma unroll
        for (int i = 0; i < HELD; i++)
            if (place(i) < a.size) call(place(i), held[i]);
        for (int64_t at = place(HELD); at < a.size; at += 2 * LANES) call(at, *reinterpret_cast<const Pair*>(sums() + at));
    }
};

// Blocks: a warp for each row.
KERNEL add_norm(KERNEL_ARGUMENT Arguments a) {
    const int64_t number = static_cast<int64_t>(block_index()) * WARPS + thread_index() / LANES;
    if (number >= a.rows) return;
    Row row = {a, number, {}};
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (row.place(i) < a.size) row.held[i] = row.added(row.place(i));
    for (int64_t at = row.place(HELD); at < a.size; at += 2 * LANES) *reinterpret_cast<Pair*>(row.sums() + at) = row.added(at);
    const float each = 1.0f / static_cast<float>(a.size);
    float sum = 0.0f, squares = 0.0f;
    row.each([&](int64_t, Pair pair) { sum += pair.x + pair.y; });
    const float mean = over_warp(sum) * each;
    row.each([&](int64_t, Pair pair) { squares += (pair.x - mean) * (pair.x - mean) + (pair.y - mean) * (pair.y - mean); });
    const float factor = 1.0f / sqrtf(over_warp(squares) * each + static_cast<float>(a.eps));
    row.each([&](int64_t at, Pair pair) {
        const Pair weight = *reinterpret_cast<const Pair*>(a.weight + at), bias = *reinterpret_cast<const Pair*>(a.bias + at);
        const Pair normed = {(pair.x - mean) * factor * weight.x + bias.x, (pair.y - mean) * factor * weight.y + bias.y};
        *reinterpret_cast<Pair*>(row.sums() + at) = a.after ? normed : pair;
        Vector<NUMBER>::put(a.normed, number * a.size + at, normed);
    });
}
