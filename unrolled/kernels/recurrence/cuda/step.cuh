// The parts that the step loops share.
//
// Compiled for one CELL_TYPE, with its numbers of GATES, SAVED and UNIT_WEIGHTS (plan.py), one NUMBER_TYPE and HIDDEN_SIZE
// units, which padding fills up to PADDED_SIZE; BLOCK_UNITS of them to a block; MANY_ROWS where a chunk has more than
// TILE_ROWS. Buffers are (T, B, ·) and contiguous unless `Arguments` has strides for them.
#pragma once

#include <device.cuh>

#include <arguments.h>
#include <cells.cuh>
#include <weights.cuh>
#include <shared_memory.cuh>
#include <thread_map.cuh>
#include <bias.cuh>
#include <buffers.cuh>
#include <product.cuh>

// The inputs of a backward step, except for the gradient from the steps after it.
struct StepRecord {
    uint32_t saved[SAVED], d_output, h_entering;
    Pair c_entering, c_left;
    bool real;

    DEVICE void load(const Arguments& a, const ThreadMap& map, int chunk, int step) {
        const int t = map.time(step);
        const int64_t row = map.batch_row(chunk);
        real = is_real(a, row, t);
        if (!real) return;
#pragma unroll
        for (int i = 0; i < SAVED; i++) saved[i] = load_word(saved_at(a, map, chunk, t, i));
        d_output = d_output_word(a, map, row, t);
        h_entering = load_word(a.exchange + map.at(t, chunk, PADDED_SIZE));
        if (!HAS_CELL_STATE) return;
        c_left = load_pair(a.cell_states + map.at(t, chunk, CELL_STATE_SIZE));
        if (is_reset(a, row, t)) {
            c_entering = load_state(a.c_reset, map, row);
        } else if (step == 0) {
            c_entering = load_state(a.c_initial, map, row);
        } else {
            c_entering = load_pair(a.cell_states + map.at(map.time(step - 1), chunk, CELL_STATE_SIZE));
        }
    }
    DEVICE float at(int i, int which) const { return element(Number::unpack(saved[i]), which); }
};

// The state that enters the step at t, where h and c left the step before: kept here, and h sent to the other blocks.
template <class Shared>
DEVICE void enter(const Arguments& a, const ThreadMap& map, const Shared& shared, int chunk, int t, Pair h, Pair c) {
    const int64_t row = map.batch_row(chunk);
    if (is_reset(a, row, t)) {
        h = load_state(a.h_reset, map, row);
        c = load_state(a.c_reset, map, row);
    }
    store_exchanged(a.exchange + map.at(t, chunk, PADDED_SIZE), pack(h));
    shared.first[map.slot(chunk)] = h;
    shared.second[map.slot(chunk)] = c;
}

// Loads the biases; the initial states enter the first step.
template <class Shared>
DEVICE void begin_forward(const Arguments& a, const ThreadMap& map, const Shared& shared) {
    for (int i = thread_index(); i < GATES * BLOCK_UNITS; i += THREADS)
        shared.bias[i] = unit_bias(a, i / BLOCK_UNITS, map.first_unit + i % BLOCK_UNITS);
    for (int chunk = 0; chunk < map.chunks; chunk++) {
        if (!map.has_row(chunk)) continue;
        const int64_t row = map.batch_row(chunk);
        const Pair h = load_state(a.h_initial, map, row), c = load_state(a.c_initial, map, row);
        enter(a, map, shared, chunk, map.time(0), h, c);
    }
    sync_block();  // spilled weights and biases are written
}

// The state that left a step enters the next one, before anything else since other blocks wait for it; or it is final.
template <class Shared>
DEVICE void end_step(const Arguments& a, const ThreadMap& map, const Shared& shared, int chunk, int step, bool real, Pair h,
                     Pair c) {
    const int64_t row = map.batch_row(chunk);
    if (step + 1 < map.steps) {
        enter(a, map, shared, chunk, map.time(step + 1), h, c);
    } else {
        store_state(a.h_final, map, row, h);
        if (HAS_CELL_STATE) store_state(a.c_final, map, row, c);
    }
    store_output(a, map, row, map.time(step), real ? pack(h) : 0u);
}

// The gradients of the state that entered the step at t go to the state that left the step before, or to the reset state.
DEVICE void leave(const Arguments& a, const ThreadMap& map, int64_t row, int t, Pair& dh, Pair& dc) {
    if (!is_reset(a, row, t)) return;
    const int64_t at = row * HIDDEN_SIZE + map.unit();
    if (a.d_h_reset != nullptr && map.inside) add_pair(a.d_h_reset + at, dh);
    if (a.d_c_reset != nullptr && map.inside) add_pair(a.d_c_reset + at, dc);
    dh = {0.0f, 0.0f};
    dc = {0.0f, 0.0f};
}

// The gradients of the final states.
template <class Shared>
DEVICE void begin_backward(const Arguments& a, const ThreadMap& map, const Shared& shared) {
    for (int chunk = 0; chunk < map.chunks; chunk++) {
        if (!map.has_row(chunk)) continue;
        const int64_t row = map.batch_row(chunk);
        shared.first[map.slot(chunk)] = load_state(a.d_h_final, map, row);
        shared.second[map.slot(chunk)] = load_state(a.d_c_final, map, row);
    }
    sync_block();  // spilled weights are written
}

// The gradients of the state that left a step: those kept, and those gathered through the product of the step after it.
template <class Product, class Shared>
DEVICE void add_gathered(const Arguments& a, const ThreadMap& map, const Product& product, const Shared& shared, int chunk,
                         int step, Pair& dh, Pair& dc) {
    dh = shared.first[map.slot(chunk)];
    dc = shared.second[map.slot(chunk)];
    if (step == map.steps - 1) return;
    Pair through[1];
    product.sum(map, step, chunk, through);
    dh = {dh.x + through[0].x, dh.y + through[0].y};
    leave(a, map, map.batch_row(chunk), map.time(step + 1), dh, dc);
}

DEVICE void store_d_initial(const Arguments& a, const ThreadMap& map, int64_t row, Pair dh, Pair dc) {
    store_state(a.d_h_initial, map, row, dh);
    if (HAS_CELL_STATE) store_state(a.d_c_initial, map, row, dc);
}
