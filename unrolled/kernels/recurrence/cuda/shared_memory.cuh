// A block's shared memory: the buffers of its products, two pairs of numbers for every two units of a row, the units'
// biases, and the gradients that each thread sums up.
#pragma once

struct NoProduct {
    static constexpr int bytes(int) { return 0; }
};

// Gradients of biases and unit weights: sums over all steps for a thread's two units.
struct Accumulator {
    float* first;  // (2 * count, THREADS)

    DEVICE Accumulator(float* shared, int count) : first(shared + thread_index()) {
        for (int i = 0; i < 2 * count; i++) first[i * THREADS] = 0.0f;
    }
    DEVICE void add(int which, float low, float high) const {
        first[2 * which * THREADS] += low;
        first[(2 * which + 1) * THREADS] += high;
    }
    DEVICE Pair sums(int which) const { return {first[2 * which * THREADS], first[(2 * which + 1) * THREADS]}; }
};

// BIASES of a unit; pairs of sums that a thread has ACCUMULATED
template <int BIASES, int ACCUMULATED, class First, class Second = NoProduct>
struct Shared {
    uint8_t *of_first, *of_second;
    Pair *first, *second;
    float *bias, *accumulators;  // (BIASES, BLOCK_UNITS), (2 * ACCUMULATED, THREADS)

    DEVICE Shared(int chunk_rows, int chunks) {
        of_first = shared_memory();
        of_second = of_first + First::bytes(chunk_rows);
        first = reinterpret_cast<Pair*>(of_second + Second::bytes(chunk_rows));
        second = first + pairs(chunk_rows, chunks);
        bias = reinterpret_cast<float*>(second + pairs(chunk_rows, chunks));
        accumulators = bias + BIASES * BLOCK_UNITS;
    }

    static constexpr int pairs(int chunk_rows, int chunks) { return chunks * chunk_rows * (BLOCK_UNITS / 2); }
    static constexpr int bytes(int chunk_rows, int chunks) {
        const int products = First::bytes(chunk_rows) + Second::bytes(chunk_rows);
        return products + 2 * pairs(chunk_rows, chunks) * 8 + (BIASES * BLOCK_UNITS + 2 * ACCUMULATED * THREADS) * 4;
    }
};
