// The GRU that resets before its product, n = tanh(x_n + U_n (r∘h)): two products a step, each waiting for all blocks.
//
// `weights` are those of r and z, `second_weights` the candidate's; `second_exchange` is r∘h.
#include <step.cuh>

constexpr int R = Cell::R, Z = Cell::Z, N = Cell::N;

// Both products keep weights in registers; the first has two thirds of them.
template <int SUMS, int COLUMN_TILES>
constexpr int fragments() {
    return SUMS * UNIT_TILES * ((COLUMN_TILES + WARPS - 1) / WARPS);
}
template <int FRAGMENTS>
constexpr int held(int of_three) {
    return FRAGMENTS <= MAX_REGISTER_FRAGMENTS_OF_TWO ? FRAGMENTS : of_three * REGISTER_FRAGMENTS_WITH_SPILL / 3;
}
constexpr int FORWARD = fragments<2, WIDTH_TILES>() + fragments<1, WIDTH_TILES>();
constexpr int BACKWARD = fragments<1, 2 * WIDTH_TILES>() + fragments<1, WIDTH_TILES>();

// `weights` (2 * units, units) and `second_weights` (units, units)
using ForwardGates = Product<2, WIDTH_TILES, false, false, held<FORWARD>(2)>;
using ForwardCandidate = Product<1, WIDTH_TILES, false, false, held<FORWARD>(1)>;
using BackwardGates = Product<1, 2 * WIDTH_TILES, true, false, held<BACKWARD>(2)>;
using BackwardCandidate = Product<1, WIDTH_TILES, true, false, held<BACKWARD>(1)>;
using ForwardShared = Shared<GATES, 0, ForwardGates, ForwardCandidate>;
using BackwardShared = Shared<0, GATES, BackwardGates, BackwardCandidate>;

// The input's part of a gate, and the biases.
DEVICE Pair load_input(const Arguments& a, const ThreadMap& map, int chunk, int t, int gate) {
    return Number::unpack(input_word(a, map, map.batch_row(chunk), t, gate));
}
DEVICE Pair with_bias(Pair x, const ForwardShared& shared, const ThreadMap& map, int gate) {
    const Pair bias = load_pair(shared.bias + gate * BLOCK_UNITS + 2 * map.pair);
    return {x.x + bias.x, x.y + bias.y};
}
DEVICE Pair load_saved(const Arguments& a, const ThreadMap& map, int chunk, int t, int gate) {
    return Number::unpack(load_word(saved_at(a, map, chunk, t, gate)));
}

KERNEL forward(KERNEL_ARGUMENT Arguments a) {
    const ThreadMap map = map_threads(a);
    const ForwardShared shared(map.chunk_rows, map.chunks);
    const ForwardGates gates(a.weights, map, shared.of_first);
    const ForwardCandidate candidate(a.second_weights, map, shared.of_second);
    Pair *kept_h = shared.first, *kept_z = shared.second;
    begin_forward(a, map, shared);

    for (int step = 0; step < map.steps; step++) {
        const int t = map.time(step);
        for (int chunk = 0; chunk < map.chunks; chunk++) {
            const bool owner = map.has_row(chunk);
            Pair x_r = {}, x_z = {};
            if (owner) {
                x_r = load_input(a, map, chunk, t, R);
                x_z = load_input(a, map, chunk, t, Z);
            }
            gates.gather(a.exchange + map.first_of_chunk(t, chunk, PADDED_SIZE), map, step, chunk);
            if (!owner) continue;

            Pair sums[2];
            gates.sum(map, step, chunk, sums);
            const Pair h = kept_h[map.slot(chunk)];
            const Pair r = Cell::gate(with_bias(x_r, shared, map, R), sums[R]);
            const Pair z = Cell::gate(with_bias(x_z, shared, map, Z), sums[Z]);
            store_exchanged(a.second_exchange + map.at(t, chunk, PADDED_SIZE), Number::pack(r.x * h.x, r.y * h.y));
            kept_z[map.slot(chunk)] = z;
            if (a.saved != nullptr) {
                store_word(saved_at(a, map, chunk, t, R), pack(r));
                store_word(saved_at(a, map, chunk, t, Z), pack(z));
            }
        }
        for (int chunk = 0; chunk < map.chunks; chunk++) {
            const bool owner = map.has_row(chunk);
            Pair x_n = {};
            bool real = false;
            if (owner) {
                x_n = load_input(a, map, chunk, t, N);
                real = is_real(a, map.batch_row(chunk), t);
            }
            candidate.gather(a.second_exchange + map.first_of_chunk(t, chunk, PADDED_SIZE), map, step, chunk);
            if (!owner) continue;

            Pair sums[1];
            candidate.sum(map, step, chunk, sums);
            const Pair h = kept_h[map.slot(chunk)], z = kept_z[map.slot(chunk)];
            const Pair n = Cell::candidate(with_bias(x_n, shared, map, N), sums[0]);
            const Pair left = real ? Cell::state(h, z, n) : h;
            end_step(a, map, shared, chunk, step, real, left, {0.0f, 0.0f});
            if (a.saved != nullptr) store_word(saved_at(a, map, chunk, t, N), pack(n));
        }
    }
}

// `d_gates` (T, B, 2 * PADDED_SIZE) and `d_candidate` (T, B, PADDED_SIZE) are both exchanges here.
KERNEL backward(KERNEL_ARGUMENT Arguments a) {
    const ThreadMap map = map_threads(a);
    const BackwardShared shared(map.chunk_rows, map.chunks);
    const BackwardGates gates(a.weights, map, shared.of_first);
    const BackwardCandidate candidate(a.second_weights, map, shared.of_second);
    Pair* kept_dh = shared.first;
    const Accumulator accumulator(shared.accumulators, GATES);
    begin_backward(a, map, shared);

    for (int step = map.steps - 1; step >= -1; step--) {  // at -1 the gradients are those of the initial state
        const bool first = step == map.steps - 1;
        const int t = step < 0 ? 0 : map.time(step), after = first ? 0 : map.time(step + 1);
        for (int chunk = 0; chunk < map.chunks; chunk++) {
            const bool owner = map.has_row(chunk);
            const int64_t row = map.batch_row(chunk);
            Pair dy = {}, z = {}, n = {};
            bool real = false;
            if (owner && step >= 0) real = is_real(a, row, t);
            if (real) {
                z = load_saved(a, map, chunk, t, Z);
                n = load_saved(a, map, chunk, t, N);
                dy = Number::unpack(d_output_word(a, map, row, t));
            }
            if (!first) gates.gather(a.d_gates + map.first_of_chunk(after, chunk, 2 * PADDED_SIZE), map, step, chunk);
            if (!owner) continue;

            Pair dh, dc;
            add_gathered(a, map, gates, shared, chunk, step, dh, dc);
            if (step < 0) {
                store_d_initial(a, map, row, dh, dc);
                continue;
            }
            dh = {dh.x + dy.x, dh.y + dy.y};  // dy, z and n are zero where the step is padding
            const Pair d_n = real ? Cell::d_candidate(dh, z, n) : Pair{};
            store_exchanged(a.d_candidate + map.at(t, chunk, PADDED_SIZE), pack(d_n));
            store_d_input(a, map, row, t, N, pack(d_n));
            accumulator.add(N, d_n.x, d_n.y);
            kept_dh[map.slot(chunk)] = dh;
        }
        if (step < 0) break;
        for (int chunk = 0; chunk < map.chunks; chunk++) {
            const bool owner = map.has_row(chunk);
            Pair r = {}, z = {}, n = {}, h = {};
            bool real = false;
            if (owner) real = is_real(a, map.batch_row(chunk), t);
            if (real) {
                r = load_saved(a, map, chunk, t, R);
                z = load_saved(a, map, chunk, t, Z);
                n = load_saved(a, map, chunk, t, N);
                h = Number::unpack(load_word(a.exchange + map.at(t, chunk, PADDED_SIZE)));
            }
            candidate.gather(a.d_candidate + map.first_of_chunk(t, chunk, PADDED_SIZE), map, step, chunk);
            if (!owner) continue;

            Pair through[1];
            candidate.sum(map, step, chunk, through);
            const Pair dh = kept_dh[map.slot(chunk)], d_rh = through[0];
            Pair d_r = {}, d_z = {}, d_entering = dh;
            if (real) {
                d_r = Cell::d_reset(d_rh, h, r);
                d_z = Cell::d_update(dh, h, z, n);
                d_entering = {dh.x * z.x + d_rh.x * r.x, dh.y * z.y + d_rh.y * r.y};
            }
            uint16_t* to = a.d_gates + map.at(t, chunk, 2 * PADDED_SIZE);
            store_exchanged(to + R * PADDED_SIZE, pack(d_r));
            store_exchanged(to + Z * PADDED_SIZE, pack(d_z));
            const int64_t row = map.batch_row(chunk);
            store_d_input(a, map, row, t, R, pack(d_r));
            store_d_input(a, map, row, t, Z, pack(d_z));
            accumulator.add(R, d_r.x, d_r.y);
            accumulator.add(Z, d_z.x, d_z.y);
            kept_dh[map.slot(chunk)] = d_entering;
        }
    }
    write_accumulators<GATES>(map, accumulator, 0, a.d_bias);
}
