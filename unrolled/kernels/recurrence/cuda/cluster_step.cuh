// The parts that the step loops of clusters share: cluster.cu, gru_before_cluster.cu. A thread keeps its state in registers.
#pragma once

#include <cluster_exchange.cuh>

// The input's part of the gates, loaded one step ahead.
struct GateInputs {
    uint32_t now[GATES] = {}, next[GATES] = {};

    DEVICE void load(const Arguments& a, const ThreadMap& map, int64_t row, int step) {
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) next[gate] = input_word(a, map, row, map.time(step), gate);
    }
    DEVICE void advance(const Arguments& a, const ThreadMap& map, int64_t row, int step) {
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) now[gate] = next[gate];
        if (step + 1 < map.steps) load(a, map, row, step + 1);
    }
};

DEVICE void load_biases(const Arguments& a, const ThreadMap& map, Pair (&bias)[GATES]) {
#pragma unroll
    for (int gate = 0; gate < GATES; gate++)
        bias[gate] = {unit_bias(a, gate, map.unit()), unit_bias(a, gate, map.unit() + 1)};
}

// A function that sends the state that enters a step, where h and c left the step before, to every block.
DEVICE auto make_enter(const Arguments& a, const ThreadMap& map, const Broadcast& entering, const int64_t& row,
                       const bool& real_row, Pair& h, Pair& c) {
    return [&](int step) {
        const int t = map.time(step);
        if (real_row && is_reset(a, row, t)) {
            h = load_state(a.h_reset, map, row);
            c = load_state(a.c_reset, map, row);
        }
        const uint32_t word = pack(h);
        entering.send(map, step, word);
        if (real_row && a.saved != nullptr) store_word(a.exchange + map.at(t, 0, PADDED_SIZE), word);
    };
}

// Adds the gradients that came through the product of the step after this one.
template <class Gathered>
DEVICE void add_collected(const Arguments& a, const ThreadMap& map, const Gathered& gathered, int64_t row, bool real_row,
                          int step, Pair& dh, Pair& dc) {
    const Pair through = gathered.collect(map, step & 1);
    dh = {dh.x + through.x, dh.y + through.y};
    if (real_row) leave(a, map, row, map.time(step + 1), dh, dc);
}

DEVICE void store_d_bias(const Arguments& a, const ThreadMap& map, const Pair (&d_bias)[GATES]) {
    if (a.d_bias == nullptr) return;
#pragma unroll
    for (int gate = 0; gate < GATES; gate++)
        store_pair(a.d_bias + (map.accumulator_row * GATES + gate) * PADDED_SIZE + map.unit(), d_bias[gate]);
}
