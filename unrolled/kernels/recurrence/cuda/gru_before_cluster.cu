// gru_before.cu for up to 512 units: the blocks of a group are a cluster (near.cuh), and both of a step's exchanges go
// through their shared memories. What z has to do with is multiplied while another exchange is on its way.
#include <device.cuh>

#include <arguments.h>
#include <weights.cuh>
#include <shared.cuh>
#include <place.cuh>
#include <product.cuh>
#include <bias.cuh>
#include <near.cuh>

using Number = NUMBER_TYPE;
constexpr int R = 0, Z = 1, N = 2, GATES = 3;

// `weights` (2 * units, units) and `second_weights` (units, units)
using ForwardGate = Product<Number, 1, WIDTH, false, true>;

struct ForwardShared {
    static constexpr int of_gate(int gate) { return 2 * Shown::bytes() + gate * ForwardGate::bytes(ROWS); }
    static constexpr int bytes(int, int) { return of_gate(GATES); }
};

KERNEL forward(GIVEN Arguments a) {
    const Place place = place_of_thread(a, BLOCKS_OF_CLUSTER);
    const int64_t row = place.batch_row(0);
    const bool owner = thread_index() < OWNERS, real_row = owner && place.has_row(0);
    const Shown entering(shared_memory()), reset(shared_memory() + Shown::bytes());  // h, r∘h
    const ForwardGate reset_gate(a.weights, place, shared_memory() + ForwardShared::of_gate(R));
    const ForwardGate update_gate(a.weights + static_cast<int64_t>(REAL_UNITS) * REAL_UNITS, place,
                                  shared_memory() + ForwardShared::of_gate(Z));
    const ForwardGate candidate(a.second_weights, place, shared_memory() + ForwardShared::of_gate(N));
    Pair bias[GATES] = {}, h = {};
    uint32_t given[GATES] = {}, ahead[GATES] = {};  // the input's part of the gates; of the next step
    const auto load_input = [&](int step) {
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) ahead[gate] = input_word(a, place, row, place.time(step), gate);
    };
    if (real_row) {
        h = state_pair<Number>(a.h_initial, place, row);
#pragma unroll
        for (int gate = 0; gate < GATES && place.inside; gate++) {
            const int64_t at = gate * REAL_UNITS + place.unit();
            bias[gate] = {added_bias<Number, true>(a, at), added_bias<Number, true>(a, at + 1)};
        }
        load_input(0);
    }
    sync_cluster();

    // The state that enters a step, if h left the one before.
    const auto enter = [&](int step) {
        const int t = place.time(step);
        if (real_row && is_reset(a, row, t)) h = state_pair<Number>(a.h_reset, place, row);
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
        Pair part[GATES];  // of the sums, without the product
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) {
            const Pair x = Number::unpack(given[gate]);
            part[gate] = {x.x + bias[gate].x, x.y + bias[gate].y};
        }
        Words words[ForwardGate::SHARE];
        reset_gate.gather_near(entering.of_step(step), Shown::PITCH, step, words);
        if (owner) {
            Pair sums[1];
            reset_gate.sum_near(place, step, sums);
            const Pair r = {sigmoid(part[R].x + sums[0].x), sigmoid(part[R].y + sums[0].y)};
            const uint32_t word = Number::pack(r.x * h.x, r.y * h.y);
            reset.show(place, step, word);  // others wait for this: first
            if (real_row && a.saved != nullptr) {
                store_word(a.second_exchange + place.at(t, 0, HIDDEN), word);
                store_word(a.saved + place.at(t, 0, GATES * HIDDEN) + R * HIDDEN, Number::pack(r.x, r.y));
            }
        }
        update_gate.multiply_near(words, step);
        candidate.gather_near(reset.of_step(step), Shown::PITCH, step);
        if (!owner) continue;

        Pair of_z[1], of_n[1];
        update_gate.sum_near(place, step, of_z);
        candidate.sum_near(place, step, of_n);
        const Pair z = {sigmoid(part[Z].x + of_z[0].x), sigmoid(part[Z].y + of_z[0].y)};
        const Pair n = {tanh_of(part[N].x + of_n[0].x), tanh_of(part[N].y + of_n[0].y)};
        if (real) h = {n.x + z.x * (h.x - n.x), n.y + z.y * (h.y - n.y)};
        const Pair left = h;
        if (step + 1 < place.steps) enter(step + 1);
        if (!real_row) continue;
        store_output(a, place, row, t, real ? Number::pack(left.x, left.y) : 0u);
        if (a.saved != nullptr) {
            uint16_t* to = a.saved + place.at(t, 0, GATES * HIDDEN);
            store_word(to + Z * HIDDEN, Number::pack(z.x, z.y));
            store_word(to + N * HIDDEN, Number::pack(n.x, n.y));
        }
    }
    if (real_row) store_state<Number>(a.h_final, place, row, h);
    sync_cluster();  // nobody leaves while others write to its memory
}

using BackwardGates = Scattered<Number, 2 * UNITS>;
using BackwardCandidate = Scattered<Number, UNITS>;
constexpr int OF_Z = UNITS % BLOCK == 0 ? UNITS / BLOCK : BackwardGates::BLOCKS;  // its first block, if it has one to itself

struct BackwardShared {
    static constexpr int bytes(int, int) { return BackwardGates::bytes() + BackwardCandidate::bytes(); }
};

// What a step back needs, but for the gradient that comes from the steps after it.
struct Known {
    uint32_t r, z, n, h, d_output;
    bool real;

    DEVICE void load(const Arguments& a, const Place& place, int64_t row, int step) {
        const int t = place.time(step);
        real = is_real(a, row, t);
        if (!real) return;
        const uint16_t* saved = a.saved + place.at(t, 0, GATES * HIDDEN);
        r = load_word(saved + R * HIDDEN);
        z = load_word(saved + Z * HIDDEN);
        n = load_word(saved + N * HIDDEN);
        h = load_word(a.exchange + place.at(t, 0, HIDDEN));
        d_output = d_output_word(a, place, row, t);
    }
};

KERNEL backward(GIVEN Arguments a) {
    const Place place = place_of_sums(a);
    const int64_t row = place.batch_row(0);
    const bool owner = thread_index() < OWNERS, real_row = owner && place.has_row(0);
    const BackwardGates gates(a.weights, place, shared_memory());
    const BackwardCandidate candidate(a.second_weights, place, shared_memory() + BackwardGates::bytes());
    Known ahead = {};
    Pair dh = {}, d_bias[GATES] = {};
    if (real_row) {
        dh = state_pair<Number>(a.d_h_final, place, row);
        ahead.load(a, place, row, place.steps - 1);
    }
    sync_cluster();

    for (int step = place.steps - 1; step >= -1; step--) {  // at -1 what is left is the initial state's
        const int turn = step & 1;
        const Known known = ahead;
        if (real_row && step > 0) ahead.load(a, place, row, step - 1);
        if (owner && step < place.steps - 1) {
            const Pair through = gates.collect(place, turn);
            dh = {dh.x + through.x, dh.y + through.y};
            Pair none = {};
            if (real_row) leave(a, place, row, place.time(step + 1), dh, none);
        }
        if (step < 0) break;

        Pair d_n = {}, d_r = {}, d_z = {}, r = {}, h = {}, kept = {};  // `kept`: of dh, what goes on without a product
        if (known.real) {
            const Pair z = Number::unpack(known.z), n = Number::unpack(known.n), dy = Number::unpack(known.d_output);
            r = Number::unpack(known.r);
            h = Number::unpack(known.h);
            dh = {dh.x + dy.x, dh.y + dy.y};
            d_n = {dh.x * (1.0f - z.x) * (1.0f - n.x * n.x), dh.y * (1.0f - z.y) * (1.0f - n.y * n.y)};
            d_z = {dh.x * (h.x - n.x) * z.x * (1.0f - z.x), dh.y * (h.y - n.y) * z.y * (1.0f - z.y)};
            kept = {dh.x * z.x, dh.y * z.y};
        }
        if (owner) {
            candidate.put(place, turn, 0, Number::pack(d_n.x, d_n.y));
            gates.put(place, turn, Z, Number::pack(d_z.x, d_z.y));
        }
        sync_block();  // they are there; the sums of the step after have been read and cleared
        candidate.send(turn, turn);
        typename BackwardGates::Tile sums[BackwardGates::SHARE] = {};
        gates.begin<OF_Z>(turn, sums);
        if (owner) {
            const Pair d_rh = candidate.collect(place, turn);
            if (known.real) {
                d_r = {d_rh.x * h.x * r.x * (1.0f - r.x), d_rh.y * h.y * r.y * (1.0f - r.y)};
                dh = {kept.x + d_rh.x * r.x, kept.y + d_rh.y * r.y};
            }
            gates.put(place, turn, R, Number::pack(d_r.x, d_r.y));
        }
        sync_block();
        gates.finish<OF_Z>(turn, sums, turn ^ 1);

        if (!real_row) continue;
        const int t = place.time(step);
        const Pair found[GATES] = {d_r, d_z, d_n};
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) {
            const uint32_t word = Number::pack(found[gate].x, found[gate].y);
            uint16_t* to = gate == N ? a.d_candidate + place.at(t, 0, HIDDEN) : a.d_gates + place.at(t, 0, 2 * HIDDEN) + gate * HIDDEN;
            store_word(to, word);
            store_d_input<true>(a, place, row, t, GATES, gate, word);
            d_bias[gate] = {d_bias[gate].x + found[gate].x, d_bias[gate].y + found[gate].y};
        }
    }
    if (real_row) store_state<Number>(a.d_h_initial, place, row, dh);
    if (owner && a.d_bias != nullptr)
#pragma unroll
        for (int gate = 0; gate < GATES; gate++)
            store_pair(a.d_bias + (place.tally_slot * GATES + gate) * HIDDEN + place.unit(), d_bias[gate]);
    sync_cluster();
}
