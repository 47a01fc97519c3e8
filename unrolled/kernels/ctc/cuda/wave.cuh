// Runs a lattice over the frames of a sequence. A pair is a blank and the label after it. A thread has PAIRS pairs in
// registers, next to those of its neighbours, so that a frame needs one number of another thread: the last label of the
// lane before.
//
// Warps do not wait for each other at every frame. Frames are divided into chunks, and warp w computes chunk c in turn
// c + w: what it needs of the warp before, its last label before each frame of the chunk, was written to shared memory one
// turn earlier. There is one barrier for each chunk.
#pragma once

#include "sequence.cuh"

// Macros: PAIRS of a thread, and CHUNK frames, as many as registers hold the next ones of.

constexpr int WARP_PAIRS = LANES * PAIRS;

// What all lattices know of their thread's pairs.
struct Pairs {
    int first;             // pair of this thread
    int symbols[PAIRS];    // labels to look up; blanks past the end of the target
    bool skips[PAIRS];     // whether the label may follow the one before it, without a blank between
    bool wrong = false;    // a label that is none, or a log-probability that is no number

    DEVICE Pairs(const Sequence& sequence) : first(thread_index() * PAIRS) {
        int64_t before = first > 0 && first <= sequence.length ? sequence.given_label(first - 1) : -1;
#pragma unroll
        for (int k = 0; k < PAIRS; k++) {
            const bool real = first + k < sequence.length;
            const int64_t label = real ? sequence.given_label(first + k) : -1;
            const bool good = real && sequence.allowed(label);
            wrong = wrong || (real && !good);
            symbols[k] = static_cast<int>(good ? label : sequence.given.blank);
            skips[k] = real && first + k > 0 && label != before;
            before = label;
        }
    }
};

// Log-probabilities of a thread's labels, and of the blank, in one chunk; past the last frame, those of the last.
struct Emissions {
    float blank[CHUNK], labels[CHUNK][PAIRS];

    DEVICE void load(const Sequence& sequence, const Pairs& pairs, int chunk) {
#pragma unroll
        for (int i = 0; i < CHUNK; i++) {
            const int frame = chunk * CHUNK + i, last = sequence.frames - 1;
            const float* const from = sequence.frame_at(frame < last ? frame : last);
            blank[i] = load_ahead(from + sequence.given.blank);
#pragma unroll
            for (int k = 0; k < PAIRS; k++) labels[i][k] = load_ahead(from + pairs.symbols[k]);
        }
    }
};

// Shared memory: numbers that pass from a warp to the next, those into the first warp included.
template <typename NUMBER>
constexpr int wave_bytes() {
    return (WARPS + 1) * 2 * CHUNK * static_cast<int>(sizeof(NUMBER));
}

// The first `count` frames of a chunk. Without branches between the frames of a whole one, the compiler overlaps what does
// not depend on the frame before.
template <bool WHOLE, typename LATTICE, typename NUMBER>
DEVICE void run_chunk(LATTICE& lattice, const Emissions& emissions, int first, int count, const NUMBER* in, NUMBER* out) {
    const int lane = thread_index() % LANES;
#pragma unroll
    for (int i = 0; i < CHUNK; i++) {
        if (WHOLE || i < count) {
            const NUMBER last = lattice.last(), shuffled = shuffle_up(last);
            if (lane == LANES - 1) out[i] = last;
            lattice.step(first + i, lane == 0 ? in[i] : shuffled, emissions.blank[i], emissions.labels[i]);
        }
    }
}

template <typename LATTICE>
DEVICE void run_wave(const Sequence& sequence, LATTICE& lattice) {
    using Number = typename LATTICE::Number;
    Number* const passed = reinterpret_cast<Number*>(shared_memory());  // (WARPS + 1, 2, CHUNK)
    const int warp = thread_index() / LANES;
    const int warps = sequence.length / WARP_PAIRS + 1;  // that have pairs: there are length + 1
    const int chunks = (sequence.frames + CHUNK - 1) / CHUNK;
    Emissions now, next;
    if (thread_index() < 2 * CHUNK) passed[thread_index()] = LATTICE::never();
    if (warp < warps && chunks > 0) now.load(sequence, lattice.pairs, 0);
    sync_block();
    for (int turn = 0; turn < chunks + warps - 1; turn++) {
        const int chunk = turn - warp;
        if (warp < warps && chunk >= 0 && chunk < chunks) {
            next.load(sequence, lattice.pairs, chunk + 1);
            const Number* const in = passed + (2 * warp + chunk % 2) * CHUNK;
            Number* const out = passed + (2 * warp + 2 + chunk % 2) * CHUNK;
            const int first = chunk * CHUNK, count = sequence.frames - first;
            if (CHUNK == 1 || count >= CHUNK)
                run_chunk<true>(lattice, now, first, count, in, out);
            else
                run_chunk<false>(lattice, now, first, count, in, out);
            now = next;
        }
        sync_block();
    }
}
