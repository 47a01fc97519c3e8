// What a step of a cell reads beside the product, forward and back; for one CELL_TYPE and NUMBER_TYPE.
#pragma once

using Cell = CELL_TYPE;
using Number = NUMBER_TYPE;
constexpr int GATES = Cell::GATES, SAVED = Cell::SAVED;

// A unit's own weights: peepholes, or the recurrent bias of a GRU's candidate.
DEVICE void load_own(const Arguments& a, const Place& place, float (&low)[3], float (&high)[3]) {
#pragma unroll
    for (int i = 0; i < Cell::OWN; i++) {
        if (!place.inside) continue;
        if (Cell::HAS_CANDIDATE) {
            low[i] = bias_number<Number>(a, a.bias_h, (GATES - 1) * REAL_UNITS + place.unit());
            high[i] = bias_number<Number>(a, a.bias_h, (GATES - 1) * REAL_UNITS + place.unit() + 1);
        } else if (a.own != nullptr) {
            const Pair pair = load_pair(a.own + i * REAL_UNITS + place.unit());
            low[i] = pair.x;
            high[i] = pair.y;
        }
    }
}

DEVICE float bias_of(const Arguments& a, int gate, int unit) {
    if (unit >= REAL_UNITS) return 0.0f;
    const int64_t at = gate * REAL_UNITS + unit;
    const bool candidate = Cell::HAS_CANDIDATE && gate + 1 == GATES;
    return candidate ? added_bias<Number, false>(a, at) : added_bias<Number, true>(a, at);
}

// The memory that entered a step.
DEVICE Pair memory_entering(const Arguments& a, const Place& place, int chunk, int step) {
    const int64_t row = place.batch_row(chunk);
    if (is_reset(a, row, place.time(step))) return state_pair<Number>(a.c_reset, place, row);
    if (step == 0) return state_pair<Number>(a.c_initial, place, row);
    return load_pair(a.memory + place.at(place.time(step - 1), chunk, HIDDEN));
}

// What a step back needs, but for the gradient that comes from the steps after it.
struct Known {
    uint32_t saved[SAVED], d_output, h_entering;
    Pair c_entering, c_left;
    bool real;

    DEVICE void load(const Arguments& a, const Place& place, int chunk, int step) {
        const int t = place.time(step);
        const int64_t row = place.batch_row(chunk);
        real = is_real(a, row, t);
        if (!real) return;
#pragma unroll
        for (int i = 0; i < SAVED; i++) saved[i] = load_word(a.saved + place.at(t, chunk, SAVED * HIDDEN) + i * HIDDEN);
        d_output = d_output_word(a, place, row, t);
        h_entering = load_word(a.exchange + place.at(t, chunk, HIDDEN));
        if (Cell::HAS_MEMORY) {
            c_entering = memory_entering(a, place, chunk, step);
            c_left = load_pair(a.memory + place.at(t, chunk, HIDDEN));
        }
    }

    DEVICE Gone<GATES> back(int which, const float* own, float dh, float dc) const {
        float values[SAVED];
#pragma unroll
        for (int i = 0; i < SAVED; i++) values[i] = which == 0 ? Number::unpack(saved[i]).x : Number::unpack(saved[i]).y;
        const Pair dy = Number::unpack(d_output), h = Number::unpack(h_entering);
        const Left left = {dh + (which == 0 ? dy.x : dy.y), dc, which == 0 ? h.x : h.y,
                           which == 0 ? c_entering.x : c_entering.y, which == 0 ? c_left.x : c_left.y};
        return Cell::backward(values, own, left);
    }
};
