// The recurrences of recurrence.cu for up to 512 units: the blocks of a group are a cluster of up to sixteen, and what a
// step gives to the next goes from block to block through their shared memories, not through the cache.
#include <device.cuh>

#include <arguments.h>
#include <weights.cuh>
#include <shared.cuh>
#include <place.cuh>
#include <product.cuh>
#include <bias.cuh>
#include <cells.cuh>
#include <step.cuh>
#include <near.cuh>

using ForwardProduct = Product<Number, GATES, WIDTH, false, true>;

struct ForwardShared {
    static constexpr int bytes(int, int) { return Shown::bytes() + ForwardProduct::bytes(ROWS); }
};

KERNEL forward(GIVEN Arguments a) {
    const Place place = place_of_thread(a, BLOCKS_OF_CLUSTER);
    const int64_t row = place.batch_row(0);
    const int unit = place.unit();
    const bool owner = thread_index() < OWNERS, real_row = owner && place.has_row(0);
    const Shown entering(shared_memory());  // h
    const ForwardProduct product(a.weights, place, shared_memory() + Shown::bytes());
    float own[2][3] = {};
    Pair bias[GATES] = {}, h = {}, c = {};
    uint32_t given[GATES] = {}, ahead[GATES] = {};  // the input's part of the gates; of the next step
    const auto load_input = [&](int step) {
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) ahead[gate] = input_word(a, place, row, place.time(step), gate);
    };
    if (real_row) {
        load_own(a, place, own[0], own[1]);
        h = state_pair<Number>(a.h_initial, place, row);
        c = state_pair<Number>(a.c_initial, place, row);
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) bias[gate] = {bias_of(a, gate, unit), bias_of(a, gate, unit + 1)};
        load_input(0);
    }
    sync_cluster();

    // The state that enters a step, if h and c left the one before, is shown to every block.
    const auto enter = [&](int step) {
        const int t = place.time(step);
        if (real_row && is_reset(a, row, t)) {
            h = state_pair<Number>(a.h_reset, place, row);
            c = state_pair<Number>(a.c_reset, place, row);
        }
        const uint32_t word = Number::pack(h.x, h.y);
        entering.show(place, step, word);
        if (real_row && a.saved != nullptr) store_word(a.exchange + place.at(t, 0, HIDDEN), word);
    };
    if (owner) enter(0);

    for (int step = 0; step < place.steps; step++) {
        const int t = place.time(step);
        bool real = false;
        if (real_row) {
#pragma unroll
            for (int gate = 0; gate < GATES; gate++) given[gate] = ahead[gate];
            if (step + 1 < place.steps) load_input(step + 1);
            real = is_real(a, row, t);
        }
        product.gather_near(entering.of_step(step), Shown::PITCH, step);
        if (!owner) continue;

        Pair sums[GATES];
        product.sum_near(place, step, sums);
        float x[2][GATES], u[2][GATES], saved[2][SAVED];
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) {
            const Pair part = Number::unpack(given[gate]);
            x[0][gate] = part.x + bias[gate].x;
            x[1][gate] = part.y + bias[gate].y;
            u[0][gate] = sums[gate].x;
            u[1][gate] = sums[gate].y;
        }
        const Unit low = Cell::forward(x[0], u[0], own[0], {h.x, c.x}, saved[0]);
        const Unit high = Cell::forward(x[1], u[1], own[1], {h.y, c.y}, saved[1]);
        if (real) {
            h = {low.h, high.h};
            c = {low.c, high.c};
        }
        const Pair left_h = h, left_c = c;
        if (step + 1 < place.steps) enter(step + 1);  // others wait for this: first
        if (!real_row) continue;
        store_output(a, place, row, t, real ? Number::pack(left_h.x, left_h.y) : 0u);
        if (a.saved != nullptr) {
            uint16_t* to = a.saved + place.at(t, 0, SAVED * HIDDEN);
#pragma unroll
            for (int i = 0; i < SAVED; i++) store_word(to + i * HIDDEN, Number::pack(saved[0][i], saved[1][i]));
            if (Cell::HAS_MEMORY) store_pair(a.memory + place.at(t, 0, HIDDEN), left_c);
        }
    }
    if (real_row) {
        store_state<Number>(a.h_final, place, row, h);
        if (Cell::HAS_MEMORY) store_state<Number>(a.c_final, place, row, c);
    }
    sync_cluster();  // nobody leaves while others write to its memory
}

using BackwardSums = Scattered<Number, GATES * UNITS>;

struct BackwardShared {
    static constexpr int TALLY = BackwardSums::bytes();  // where what is summed up of `own` begins
    static constexpr int bytes(int, int) { return TALLY + 2 * Cell::OWN * THREADS * 4; }
};

KERNEL backward(GIVEN Arguments a) {
    const Place place = place_of_sums(a);
    const int64_t row = place.batch_row(0);
    const int unit = place.unit();
    const bool owner = thread_index() < OWNERS, real_row = owner && place.has_row(0);
    const BackwardSums gathered(a.weights, place, shared_memory());
    float own[2][3] = {};
    Pair d_bias[GATES] = {};
    const Tally d_own(reinterpret_cast<float*>(shared_memory() + BackwardShared::TALLY), Cell::OWN);
    Known ahead = {};
    sync_cluster();

    Pair dh = {}, dc = {};
    if (real_row) {
        load_own(a, place, own[0], own[1]);
        dh = state_pair<Number>(a.d_h_final, place, row);
        dc = state_pair<Number>(a.d_c_final, place, row);
        ahead.load(a, place, 0, place.steps - 1);
    }
    for (int step = place.steps - 1; step >= -1; step--) {  // at -1 what is left is the initial state's
        const int turn = step & 1;
        const Known known = ahead;
        if (real_row && step > 0) ahead.load(a, place, 0, step - 1);
        if (owner && step < place.steps - 1) {
            const Pair through = gathered.collect(place, turn);
            dh = {dh.x + through.x, dh.y + through.y};
            if (real_row) leave(a, place, row, place.time(step + 1), dh, dc);
        }
        if (step < 0) break;

        const int t = place.time(step);
        Gone<GATES> low = {{}, 0.0f, dh.x, dc.x, {}}, high = {{}, 0.0f, dh.y, dc.y, {}};
        if (known.real) {
            low = known.back(0, own[0], dh.x, dc.x);
            high = known.back(1, own[1], dh.y, dc.y);
        }
        dh = {low.dh, high.dh};
        dc = {low.dc, high.dc};
#pragma unroll
        for (int gate = 0; gate < GATES && owner; gate++)
            gathered.put(place, turn, gate, Number::pack(low.du[gate], high.du[gate]));
        sync_block();  // this step's gates are there; the sums of the step after have been read and cleared
        gathered.send(turn, turn ^ 1);

        if (!real_row) continue;
        uint16_t* to = a.d_gates + place.at(t, 0, GATES * HIDDEN);
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) {
            const bool other = Cell::HAS_CANDIDATE && gate + 1 == GATES;
            const Pair d_x = other ? Pair{low.d_candidate, high.d_candidate} : Pair{low.du[gate], high.du[gate]};
            store_word(to + gate * HIDDEN, Number::pack(low.du[gate], high.du[gate]));
            store_d_input<Cell::HAS_CANDIDATE>(a, place, row, t, GATES, gate, Number::pack(d_x.x, d_x.y));
            d_bias[gate] = {d_bias[gate].x + d_x.x, d_bias[gate].y + d_x.y};
        }
#pragma unroll
        for (int i = 0; i < Cell::OWN; i++) d_own.add(i, low.d_own[i], high.d_own[i]);
    }
    if (real_row) {
        store_state<Number>(a.d_h_initial, place, row, dh);
        if (Cell::HAS_MEMORY) store_state<Number>(a.d_c_initial, place, row, dc);
    }
    if (owner && a.d_bias != nullptr)
#pragma unroll
        for (int gate = 0; gate < GATES; gate++)
            store_pair(a.d_bias + (place.tally_slot * GATES + gate) * HIDDEN + unit, d_bias[gate]);
    if (owner) write_tally<Cell::OWN>(place, d_own, 0, a.d_own);
    sync_cluster();
}
