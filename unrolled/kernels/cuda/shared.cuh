// A block's shared memory: weights that registers do not hold, two sets of partial sums taking turns, two pairs of
// numbers for every two units of a row, and what each thread sums up for itself.
#pragma once

struct NoProduct {
    static constexpr int spare_words() { return 0; }
    static constexpr int partial_floats(int) { return 0; }
};

// Sums over all steps for a thread's two units: gradients of what the rows of a batch share.
struct Tally {
    float* first;  // (2 * count, THREADS)

    DEVICE Tally(float* shared, int count) : first(shared + thread_index()) {
        for (int i = 0; i < 2 * count; i++) first[i * THREADS] = 0.0f;
    }
    DEVICE void add(int which, float low, float high) const {
        first[2 * which * THREADS] += low;
        first[(2 * which + 1) * THREADS] += high;
    }
    DEVICE Pair sums(int which) const { return {first[2 * which * THREADS], first[(2 * which + 1) * THREADS]}; }
};

// TALLIED: how many pairs of sums a thread keeps
template <int TALLIED, class First, class Second = NoProduct>
struct Shared {
    float* sums;
    int set;  // floats of one set of partial sums
    Pair *first, *second;
    float* tally;

    DEVICE Shared(int chunk_rows, int chunks) {
        sums = reinterpret_cast<float*>(spare() + First::spare_words() + Second::spare_words());
        set = floats(chunk_rows) / 2;
        first = reinterpret_cast<Pair*>(sums + 2 * set);
        second = first + pairs(chunk_rows, chunks);
        tally = reinterpret_cast<float*>(second + pairs(chunk_rows, chunks));
    }
    DEVICE Words* spare() const { return reinterpret_cast<Words*>(shared_memory()); }
    DEVICE Words* second_spare() const { return spare() + First::spare_words(); }

    // of both sets, each large enough for either product
    static constexpr int floats(int chunk_rows) {
        return First::partial_floats(chunk_rows) > Second::partial_floats(chunk_rows)
                   ? First::partial_floats(chunk_rows)
                   : Second::partial_floats(chunk_rows);
    }
    static constexpr int pairs(int chunk_rows, int chunks) { return chunks * chunk_rows * (UNITS / 2); }
    static constexpr int bytes(int chunk_rows, int chunks) {
        const int spare = (First::spare_words() + Second::spare_words()) * 16;
        return spare + floats(chunk_rows) * 4 + 2 * pairs(chunk_rows, chunks) * 8 + 2 * TALLIED * THREADS * 4;
    }
};
