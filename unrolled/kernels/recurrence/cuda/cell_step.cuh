// The parts of a step with one product that recurrence.cu and cluster.cu share.
#pragma once

#include <step.cuh>

// Peepholes, or the recurrent bias of a GRU's candidate, of this thread's two units.
DEVICE void load_unit_weights(const Arguments& a, const ThreadMap& map, float (&low)[3], float (&high)[3]) {
#pragma unroll
    for (int i = 0; i < UNIT_WEIGHTS; i++) {
        if (!map.inside) continue;
        if (SEPARATE_CANDIDATE) {
            low[i] = bias_number(a, a.bias_h, (GATES - 1) * HIDDEN_SIZE + map.unit());
            high[i] = bias_number(a, a.bias_h, (GATES - 1) * HIDDEN_SIZE + map.unit() + 1);
        } else if (a.unit_weights != nullptr) {
            const Pair pair = load_pair(a.unit_weights + i * HIDDEN_SIZE + map.unit());
            low[i] = pair.x;
            high[i] = pair.y;
        }
    }
}

// The forward step of a thread's two units.
struct CellStep {
    Unit low, high;
    float saved[2][SAVED];

    // `words` are the input's part of each gate, `sums` the recurrent product's.
    DEVICE CellStep(const uint32_t (&words)[GATES], const Pair (&bias)[GATES], const Pair (&sums)[GATES],
                    const float (&unit_weights)[2][3], Pair h, Pair c) {
        float x[2][GATES], u[2][GATES];
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) {
            const Pair input = Number::unpack(words[gate]);
            x[0][gate] = input.x + bias[gate].x;
            x[1][gate] = input.y + bias[gate].y;
            u[0][gate] = sums[gate].x;
            u[1][gate] = sums[gate].y;
        }
        low = Cell::forward(x[0], u[0], unit_weights[0], {h.x, c.x}, saved[0]);
        high = Cell::forward(x[1], u[1], unit_weights[1], {h.y, c.y}, saved[1]);
    }

    // For the backward pass; `c` is the cell state that left the step.
    DEVICE void save(const Arguments& a, const ThreadMap& map, int chunk, int t, Pair c) const {
        uint16_t* to = saved_at(a, map, chunk, t, 0);
#pragma unroll
        for (int i = 0; i < SAVED; i++) store_word(to + i * PADDED_SIZE, Number::pack(saved[0][i], saved[1][i]));
        if (HAS_CELL_STATE) store_pair(a.cell_states + map.at(t, chunk, CELL_STATE_SIZE), c);
    }
};

// The backward step of a cell with one product, for one of a thread's units.
DEVICE StepGradients<GATES> step_back(const StepRecord& record, int which, const float* unit_weights, Pair dh, Pair dc) {
    float saved[SAVED];
#pragma unroll
    for (int i = 0; i < SAVED; i++) saved[i] = record.at(i, which);
    const Outgoing outgoing = {element(dh, which) + element(Number::unpack(record.d_output), which), element(dc, which),
                               element(Number::unpack(record.h_entering), which), element(record.c_entering, which),
                               element(record.c_left, which)};
    return Cell::backward(saved, unit_weights, outgoing);
}

// The gradients of the input's part of a gate: those of the product, except for a separate candidate.
DEVICE Pair input_gradient(const StepGradients<GATES>& low, const StepGradients<GATES>& high, int gate) {
    const bool candidate = SEPARATE_CANDIDATE && gate + 1 == GATES;
    return candidate ? Pair{low.d_candidate, high.d_candidate} : Pair{low.du[gate], high.du[gate]};
}
