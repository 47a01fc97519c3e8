// The GRU that resets before its product, n = tanh(x_n + U_n (r∘h)): two products a step, each waiting for all blocks.
//
// Compiled as recurrence.cu is. `weights` are those of r and z, `second_weights` the candidate's; `second_exchange` is r∘h.
#include <device.cuh>

#include <arguments.h>
#include <weights.cuh>
#include <shared.cuh>
#include <place.cuh>
#include <product.cuh>
#include <bias.cuh>

using Number = NUMBER_TYPE;
constexpr int SLICES = HIDDEN / UNITS, R = 0, Z = 1, N = 2, GATES = 3;

// Both products have weights in registers: two thirds of them are the first one's.
template <int SUMS, int BLOCKS>
constexpr int pieces() {
    return SUMS * SIXTEENS * ((BLOCKS + WARPS - 1) / WARPS);
}
template <int PIECES>
constexpr int held(int of_three) {
    return PIECES <= MOST_HELD_OF_TWO ? PIECES : of_three * HELD_OF_MORE / 3;
}
constexpr int FORWARD = pieces<2, WIDTH>() + pieces<1, WIDTH>(), BACKWARD = pieces<1, 2 * WIDTH>() + pieces<1, WIDTH>();

// `weights` (2 * HIDDEN, HIDDEN) and `second_weights` (HIDDEN, HIDDEN)
using ForwardGates = Product<Number, 2, WIDTH, false, false, held<FORWARD>(2)>;
using ForwardCandidate = Product<Number, 1, WIDTH, false, false, held<FORWARD>(1)>;
using BackwardGates = Product<Number, 1, 2 * WIDTH, true, false, held<BACKWARD>(2)>;
using BackwardCandidate = Product<Number, 1, WIDTH, true, false, held<BACKWARD>(1)>;
using ForwardShared = Shared<GATES, 0, ForwardGates, ForwardCandidate>;
using BackwardShared = Shared<0, GATES, BackwardGates, BackwardCandidate>;

DEVICE Pair load_input(const Arguments& a, const Place& place, int chunk, int t, int gate) {
    return Number::unpack(input_word(a, place, place.batch_row(chunk), t, gate));
}
DEVICE uint16_t* saved_at(const Arguments& a, const Place& place, int chunk, int t, int gate) {
    return a.saved + place.at(t, chunk, GATES * HIDDEN) + gate * HIDDEN;
}

KERNEL forward(GIVEN Arguments a) {
    const Place place = place_of_thread(a, SLICES);
    const ForwardShared shared(place.chunk_rows, place.chunks);
    const ForwardGates gates(a.weights, place, shared.of_first);
    const ForwardCandidate candidate(a.second_weights, place, shared.of_second);
    Pair *kept_h = shared.first, *kept_z = shared.second;
    for (int i = thread_index(); i < GATES * UNITS; i += THREADS) {
        const int gate = i / UNITS, unit = place.first_unit + i % UNITS;
        shared.bias[i] = unit < REAL_UNITS ? added_bias<Number, true>(a, gate * REAL_UNITS + unit) : 0.0f;
    }
    const auto bias = [&](int gate) { return load_pair(shared.bias + gate * UNITS + 2 * place.pair); };
    for (int chunk = 0; chunk < place.chunks; chunk++) {
        if (!place.has_row(chunk)) continue;
        const Pair h = state_pair<Number>(a.h_initial, place, place.batch_row(chunk));
        enter<Number>(a, place, kept_h, kept_z, chunk, place.time(0), h, {0.0f, 0.0f});
    }
    sync_block();

    for (int step = 0; step < place.steps; step++) {
        const int t = place.time(step);
        for (int chunk = 0; chunk < place.chunks; chunk++) {
            const bool owner = place.has_row(chunk);
            Pair x_r = {}, x_z = {};
            if (owner) {
                x_r = load_input(a, place, chunk, t, R);
                x_z = load_input(a, place, chunk, t, Z);
            }
            gates.gather(a.exchange + place.first_of_chunk(t, chunk, HIDDEN), place, step, chunk);
            if (!owner) continue;

            Pair sums[2];
            gates.sum(place, step, chunk, sums);
            const Pair h = kept_h[place.slot(chunk)];
            const Pair b_r = bias(R), b_z = bias(Z);
            const Pair r = {sigmoid(x_r.x + b_r.x + sums[R].x), sigmoid(x_r.y + b_r.y + sums[R].y)};
            const Pair z = {sigmoid(x_z.x + b_z.x + sums[Z].x), sigmoid(x_z.y + b_z.y + sums[Z].y)};
            store_exchanged(a.second_exchange + place.at(t, chunk, HIDDEN), Number::pack(r.x * h.x, r.y * h.y));
            kept_z[place.slot(chunk)] = z;
            if (a.saved != nullptr) {
                store_word(saved_at(a, place, chunk, t, R), Number::pack(r.x, r.y));
                store_word(saved_at(a, place, chunk, t, Z), Number::pack(z.x, z.y));
            }
        }
        for (int chunk = 0; chunk < place.chunks; chunk++) {
            const bool owner = place.has_row(chunk);
            const int64_t row = place.batch_row(chunk);
            Pair x_n = {};
            bool real = false;
            if (owner) {
                x_n = load_input(a, place, chunk, t, N);
                real = is_real(a, row, t);
            }
            candidate.gather(a.second_exchange + place.first_of_chunk(t, chunk, HIDDEN), place, step, chunk);
            if (!owner) continue;

            Pair sums[1];
            candidate.sum(place, step, chunk, sums);
            const Pair h = kept_h[place.slot(chunk)], z = kept_z[place.slot(chunk)];
            const Pair b_n = bias(N);
            const Pair n = {tanh_of(x_n.x + b_n.x + sums[0].x), tanh_of(x_n.y + b_n.y + sums[0].y)};
            Pair left = h;
            if (real) left = {n.x + z.x * (h.x - n.x), n.y + z.y * (h.y - n.y)};
            if (step + 1 < place.steps) {
                enter<Number>(a, place, kept_h, kept_z, chunk, place.time(step + 1), left, {0.0f, 0.0f});
            } else {
                store_state<Number>(a.h_final, place, row, left);
            }
            store_output(a, place, row, t, real ? Number::pack(left.x, left.y) : 0u);
            if (a.saved != nullptr) store_word(saved_at(a, place, chunk, t, N), Number::pack(n.x, n.y));
        }
    }
}

// `d_gates` (T, B, 2 * HIDDEN) and `d_candidate` (T, B, HIDDEN) are both exchanges here.
KERNEL backward(GIVEN Arguments a) {
    const Place place = place_of_thread(a, SLICES);
    const BackwardShared shared(place.chunk_rows, place.chunks);
    const BackwardGates gates(a.weights, place, shared.of_first);
    const BackwardCandidate candidate(a.second_weights, place, shared.of_second);
    Pair* kept_dh = shared.first;
    const Tally tally(shared.tally, GATES);
    for (int chunk = 0; chunk < place.chunks; chunk++) {
        if (!place.has_row(chunk)) continue;
        kept_dh[place.slot(chunk)] = state_pair<Number>(a.d_h_final, place, place.batch_row(chunk));
    }
    sync_block();

    for (int step = place.steps - 1; step >= -1; step--) {  // at -1 what is left is the initial state's
        const bool first = step == place.steps - 1;
        const int t = step < 0 ? 0 : place.time(step), after = first ? 0 : place.time(step + 1);
        for (int chunk = 0; chunk < place.chunks; chunk++) {
            const bool owner = place.has_row(chunk);
            const int64_t row = place.batch_row(chunk);
            Pair dy = {}, z = {}, n = {};
            bool real = false;
            if (owner && step >= 0) real = is_real(a, row, t);
            if (real) {
                z = Number::unpack(load_word(saved_at(a, place, chunk, t, Z)));
                n = Number::unpack(load_word(saved_at(a, place, chunk, t, N)));
                dy = Number::unpack(d_output_word(a, place, row, t));
            }
            if (!first) gates.gather(a.d_gates + place.first_of_chunk(after, chunk, 2 * HIDDEN), place, step, chunk);
            if (!owner) continue;

            Pair dh = kept_dh[place.slot(chunk)], none = {};
            if (!first) {
                Pair through[1];
                gates.sum(place, step, chunk, through);
                dh = {dh.x + through[0].x, dh.y + through[0].y};
                leave(a, place, row, after, dh, none);
            }
            if (step < 0) {
                store_state<Number>(a.d_h_initial, place, row, dh);
                continue;
            }
            dh = {dh.x + dy.x, dh.y + dy.y};  // dy, z and n are zero where the step is not real
            Pair d_n = {};
            if (real) d_n = {dh.x * (1.0f - z.x) * (1.0f - n.x * n.x), dh.y * (1.0f - z.y) * (1.0f - n.y * n.y)};
            store_exchanged(a.d_candidate + place.at(t, chunk, HIDDEN), Number::pack(d_n.x, d_n.y));
            store_d_input<true>(a, place, row, t, GATES, N, Number::pack(d_n.x, d_n.y));
            tally.add(N, d_n.x, d_n.y);
            kept_dh[place.slot(chunk)] = dh;
        }
        if (step < 0) break;
        for (int chunk = 0; chunk < place.chunks; chunk++) {
            const bool owner = place.has_row(chunk);
            Pair r = {}, z = {}, n = {}, h = {};
            bool real = false;
            if (owner) real = is_real(a, place.batch_row(chunk), t);
            if (real) {
                r = Number::unpack(load_word(saved_at(a, place, chunk, t, R)));
                z = Number::unpack(load_word(saved_at(a, place, chunk, t, Z)));
                n = Number::unpack(load_word(saved_at(a, place, chunk, t, N)));
                h = Number::unpack(load_word(a.exchange + place.at(t, chunk, HIDDEN)));
            }
            candidate.gather(a.d_candidate + place.first_of_chunk(t, chunk, HIDDEN), place, step, chunk);
            if (!owner) continue;

            Pair d_reset[1];  // of r∘h
            candidate.sum(place, step, chunk, d_reset);
            const Pair dh = kept_dh[place.slot(chunk)], d_rh = d_reset[0];
            Pair d_r = {}, d_z = {}, d_entering = dh;
            if (real) {
                d_r = {d_rh.x * h.x * r.x * (1.0f - r.x), d_rh.y * h.y * r.y * (1.0f - r.y)};
                d_z = {dh.x * (h.x - n.x) * z.x * (1.0f - z.x), dh.y * (h.y - n.y) * z.y * (1.0f - z.y)};
                d_entering = {dh.x * z.x + d_rh.x * r.x, dh.y * z.y + d_rh.y * r.y};
            }
            uint16_t* to = a.d_gates + place.at(t, chunk, 2 * HIDDEN);
            store_exchanged(to + R * HIDDEN, Number::pack(d_r.x, d_r.y));
            store_exchanged(to + Z * HIDDEN, Number::pack(d_z.x, d_z.y));
            const int64_t row = place.batch_row(chunk);
            store_d_input<true>(a, place, row, t, GATES, R, Number::pack(d_r.x, d_r.y));
            store_d_input<true>(a, place, row, t, GATES, Z, Number::pack(d_z.x, d_z.y));
            tally.add(R, d_r.x, d_r.y);
            tally.add(Z, d_z.x, d_z.y);
            kept_dh[place.slot(chunk)] = d_entering;
        }
    }
    write_tally<GATES>(place, tally, 0, a.d_bias);
}
