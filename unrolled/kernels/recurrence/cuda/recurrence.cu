// A recurrence whose step is one product and an element-wise part: RNN, LSTM with and without peepholes, GRU.
//
// Compiled for one CELL_TYPE, one NUMBER_TYPE and REAL_UNITS, which are filled up to WIDTH blocks of 32 with units that
// have zero weights and stay zero; BLOCK_UNITS of them to a block; MANY_ROWS where a chunk has more than eight. Buffers
// are (T, B, ·) and contiguous where no strides are given.
#include <device.cuh>

#include <arguments.h>
#include <weights.cuh>
#include <shared.cuh>
#include <place.cuh>
#include <product.cuh>
#include <bias.cuh>
#include <cells.cuh>
#include <step.cuh>

constexpr int SLICES = HIDDEN / UNITS;

using ForwardProduct = Product<Number, GATES, WIDTH>;
using BackwardProduct = Product<Number, 1, GATES * WIDTH, true>;
using ForwardShared = Shared<GATES, 0, ForwardProduct>;
using BackwardShared = Shared<0, GATES + Cell::OWN, BackwardProduct>;

KERNEL forward(GIVEN Arguments a) {
    using Sum = ForwardProduct;
    const Place place = place_of_thread(a, SLICES);
    const ForwardShared shared(place.chunk_rows, place.chunks);
    const Sum product(a.weights, place, shared.of_first);
    float own[2][3] = {};
    load_own(a, place, own[0], own[1]);
    for (int i = thread_index(); i < GATES * UNITS; i += THREADS)
        shared.bias[i] = bias_of(a, i / UNITS, place.first_unit + i % UNITS);
    for (int chunk = 0; chunk < place.chunks; chunk++) {
        if (!place.has_row(chunk)) continue;
        const int64_t row = place.batch_row(chunk);
        const Pair h = state_pair<Number>(a.h_initial, place, row), c = state_pair<Number>(a.c_initial, place, row);
        enter<Number>(a, place, shared.first, shared.second, chunk, place.time(0), h, c);
    }
    sync_block();  // the spare weights and biases are there

    for (int step = 0; step < place.steps; step++) {
        const int t = place.time(step);
        for (int chunk = 0; chunk < place.chunks; chunk++) {
            const bool owner = place.has_row(chunk);
            const int64_t row = place.batch_row(chunk);
            uint32_t words[GATES] = {};
            bool real = false;
            if (owner) {
#pragma unroll
                for (int gate = 0; gate < GATES; gate++) words[gate] = input_word(a, place, row, t, gate);
                real = is_real(a, row, t);
            }
            product.gather(a.exchange + place.first_of_chunk(t, chunk, HIDDEN), place, step, chunk);
            if (!owner) continue;

            Pair sums[GATES];
            product.sum(place, step, chunk, sums);
            const Pair h = shared.first[place.slot(chunk)], c = shared.second[place.slot(chunk)];
            float x[2][GATES], u[2][GATES], saved[2][SAVED];
#pragma unroll
            for (int gate = 0; gate < GATES; gate++) {
                const Pair given = Number::unpack(words[gate]);
                const Pair bias = load_pair(shared.bias + gate * UNITS + 2 * place.pair);
                x[0][gate] = given.x + bias.x;
                x[1][gate] = given.y + bias.y;
                u[0][gate] = sums[gate].x;
                u[1][gate] = sums[gate].y;
            }
            Unit low = Cell::forward(x[0], u[0], own[0], {h.x, c.x}, saved[0]);
            Unit high = Cell::forward(x[1], u[1], own[1], {h.y, c.y}, saved[1]);
            if (!real) {
                low = {h.x, c.x};
                high = {h.y, c.y};
            }
            // others wait for this: first
            if (step + 1 < place.steps) {
                enter<Number>(a, place, shared.first, shared.second, chunk, place.time(step + 1),
                                      {low.h, high.h}, {low.c, high.c});
            } else {
                store_state<Number>(a.h_final, place, row, {low.h, high.h});
                if (Cell::HAS_MEMORY) store_state<Number>(a.c_final, place, row, {low.c, high.c});
            }
            store_output(a, place, row, t, real ? Number::pack(low.h, high.h) : 0u);
            if (a.saved != nullptr) {
                uint16_t* to = a.saved + place.at(t, chunk, SAVED * HIDDEN);
#pragma unroll
                for (int i = 0; i < SAVED; i++) store_word(to + i * HIDDEN, Number::pack(saved[0][i], saved[1][i]));
                if (Cell::HAS_MEMORY) store_pair(a.memory + place.at(t, chunk, HIDDEN), {low.c, high.c});
            }
        }
    }
}

// `d_gates` (T, B, GATES * HIDDEN) is the exchange.
KERNEL backward(GIVEN Arguments a) {
    using Sum = BackwardProduct;
    const Place place = place_of_thread(a, SLICES);
    const BackwardShared shared(place.chunk_rows, place.chunks);
    const Sum product(a.weights, place, shared.of_first);
    float own[2][3] = {};
    load_own(a, place, own[0], own[1]);
    const Tally tally(shared.tally, GATES + Cell::OWN);
    for (int chunk = 0; chunk < place.chunks; chunk++) {
        if (!place.has_row(chunk)) continue;
        const int64_t row = place.batch_row(chunk);
        shared.first[place.slot(chunk)] = state_pair<Number>(a.d_h_final, place, row);
        shared.second[place.slot(chunk)] = state_pair<Number>(a.d_c_final, place, row);
    }
    sync_block();  // the spare weights are there

    for (int step = place.steps - 1; step >= -1; step--) {  // at -1 what is left is the initial state's
        const bool first = step == place.steps - 1;
        const int after = first ? 0 : place.time(step + 1);
        for (int chunk = 0; chunk < place.chunks; chunk++) {
            const bool owner = place.has_row(chunk);
            const int64_t row = place.batch_row(chunk);
            Known known = {};
            if (owner && step >= 0) known.load(a, place, chunk, step);
            if (!first)
                product.gather(a.d_gates + place.first_of_chunk(after, chunk, GATES * HIDDEN), place, step, chunk);
            if (!owner) continue;

            Pair dh = shared.first[place.slot(chunk)], dc = shared.second[place.slot(chunk)];
            if (!first) {
                Pair through[1];
                product.sum(place, step, chunk, through);
                dh = {dh.x + through[0].x, dh.y + through[0].y};
                leave(a, place, row, after, dh, dc);
            }
            if (step < 0) {
                store_state<Number>(a.d_h_initial, place, row, dh);
                if (Cell::HAS_MEMORY) store_state<Number>(a.d_c_initial, place, row, dc);
                continue;
            }
            const int t = place.time(step);
            Gone<GATES> low = {{}, 0.0f, dh.x, dc.x, {}}, high = {{}, 0.0f, dh.y, dc.y, {}};
            if (known.real) {
                low = known.back(0, own[0], dh.x, dc.x);
                high = known.back(1, own[1], dh.y, dc.y);
            }
            uint16_t* to = a.d_gates + place.at(t, chunk, GATES * HIDDEN);
#pragma unroll
            for (int gate = 0; gate < GATES; gate++)
                store_exchanged(to + gate * HIDDEN, Number::pack(low.du[gate], high.du[gate]));
#pragma unroll
            for (int gate = 0; gate < GATES; gate++) {
                const bool other = Cell::HAS_CANDIDATE && gate + 1 == GATES;
                const Pair d_x = other ? Pair{low.d_candidate, high.d_candidate} : Pair{low.du[gate], high.du[gate]};
                store_d_input<Cell::HAS_CANDIDATE>(a, place, row, t, GATES, gate, Number::pack(d_x.x, d_x.y));
                tally.add(gate, d_x.x, d_x.y);
            }
#pragma unroll
            for (int i = 0; i < Cell::OWN; i++) tally.add(GATES + i, low.d_own[i], high.d_own[i]);
            shared.first[place.slot(chunk)] = {low.dh, high.dh};
            shared.second[place.slot(chunk)] = {low.dc, high.dc};
        }
    }
    write_tally<GATES>(place, tally, 0, a.d_bias);
    write_tally<Cell::OWN>(place, tally, GATES, a.d_own);
}
