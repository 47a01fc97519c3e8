// gru_before.cu for up to 512 units: the blocks of a group are a cluster, and both exchanges of a step go through their
// shared memories. The products of z are computed while the other exchange is under way.
#include <step.cuh>
#include <cluster_step.cuh>

constexpr int R = Cell::R, Z = Cell::Z, N = Cell::N;

// `weights` (2 * units, units) and `second_weights` (units, units)
using ForwardGate = Product<1, WIDTH_TILES, false, true>;

struct ForwardShared {
    static constexpr int of_gate(int gate) { return 2 * Broadcast::bytes() + gate * ForwardGate::bytes(ROWS); }
    static constexpr int bytes(int, int) { return of_gate(GATES); }
};

KERNEL forward(KERNEL_ARGUMENT Arguments a) {
    const ThreadMap map = map_threads(a);
    const int64_t row = map.batch_row(0);
    const bool owner = thread_index() < OWNERS, real_row = owner && map.has_row(0);
    const Broadcast entering(shared_memory()), reset(shared_memory() + Broadcast::bytes());  // h, r∘h
    const ForwardGate reset_gate(a.weights, map, shared_memory() + ForwardShared::of_gate(R));
    const ForwardGate update_gate(a.weights + static_cast<int64_t>(HIDDEN_SIZE) * HIDDEN_SIZE, map,
                                  shared_memory() + ForwardShared::of_gate(Z));
    const ForwardGate candidate(a.second_weights, map, shared_memory() + ForwardShared::of_gate(N));
    Pair bias[GATES] = {}, h = {}, unused = {};
    GateInputs inputs;
    if (real_row) {
        h = load_state(a.h_initial, map, row);
        load_biases(a, map, bias);
        inputs.load(a, map, row, 0);
    }
    sync_cluster();
    const auto enter = make_enter(a, map, entering, row, real_row, h, unused);
    if (owner) enter(0);

    for (int step = 0; step < map.steps; step++) {
        const int t = map.time(step);
        bool real = false;
        if (real_row) {
            inputs.advance(a, map, row, step);
            real = is_real(a, row, t);
        }
        Pair x[GATES];  // with the biases
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) {
            const Pair input = Number::unpack(inputs.now[gate]);
            x[gate] = {input.x + bias[gate].x, input.y + bias[gate].y};
        }
        Words words[ForwardGate::SHARE];
        reset_gate.gather_cluster(entering.buffer(step), Broadcast::PITCH, step, words);
        if (owner) {
            Pair sums[1];
            reset_gate.sum_cluster(map, step, sums);
            const Pair r = Cell::gate(x[R], sums[0]);
            const uint32_t word = Number::pack(r.x * h.x, r.y * h.y);
            reset.send(map, step, word);  // before anything else: other blocks wait for it
            if (real_row && a.saved != nullptr) {
                store_word(a.second_exchange + map.at(t, 0, PADDED_SIZE), word);
                store_word(saved_at(a, map, 0, t, R), pack(r));
            }
        }
        update_gate.multiply_gathered(words, step);
        candidate.gather_cluster(reset.buffer(step), Broadcast::PITCH, step);
        if (!owner) continue;

        Pair of_z[1], of_n[1];
        update_gate.sum_cluster(map, step, of_z);
        candidate.sum_cluster(map, step, of_n);
        const Pair z = Cell::gate(x[Z], of_z[0]), n = Cell::candidate(x[N], of_n[0]);
        if (real) h = Cell::state(h, z, n);
        const Pair left = h;
        if (step + 1 < map.steps) enter(step + 1);
        if (!real_row) continue;
        store_output(a, map, row, t, real ? pack(left) : 0u);
        if (a.saved != nullptr) {
            store_word(saved_at(a, map, 0, t, Z), pack(z));
            store_word(saved_at(a, map, 0, t, N), pack(n));
        }
    }
    if (real_row) store_state(a.h_final, map, row, h);
    sync_cluster();  // no block ends while others write to its memory
}

using BackwardGates = ReduceScatter<2 * BLOCK_UNITS>;
using BackwardCandidate = ReduceScatter<BLOCK_UNITS>;
// the first column tile of z, if no other gate has a part of it
constexpr int OF_Z = BLOCK_UNITS % TILE_COLUMNS == 0 ? BLOCK_UNITS / TILE_COLUMNS : BackwardGates::COLUMN_TILES;

struct BackwardShared {
    static constexpr int bytes(int, int) { return BackwardGates::bytes() + BackwardCandidate::bytes(); }
};

KERNEL backward(KERNEL_ARGUMENT Arguments a) {
    const ThreadMap map = map_sums(a);
    const int64_t row = map.batch_row(0);
    const bool owner = thread_index() < OWNERS, real_row = owner && map.has_row(0);
    const BackwardGates gates(a.weights, map, shared_memory());
    const BackwardCandidate candidate(a.second_weights, map, shared_memory() + BackwardGates::bytes());
    StepRecord ahead = {};
    Pair dh = {}, unused = {}, d_bias[GATES] = {};
    if (real_row) {
        dh = load_state(a.d_h_final, map, row);
        ahead.load(a, map, 0, map.steps - 1);
    }
    sync_cluster();

    for (int step = map.steps - 1; step >= -1; step--) {  // at -1 the gradients are those of the initial state
        const int turn = step & 1;
        const StepRecord record = ahead;
        if (real_row && step > 0) ahead.load(a, map, 0, step - 1);
        if (owner && step < map.steps - 1) add_collected(a, map, gates, row, real_row, step, dh, unused);
        if (step < 0) break;

        Pair d_n = {}, d_r = {}, d_z = {}, r = {}, h = {}, kept = {};  // `kept`: the part of dh that needs no product
        if (record.real) {
            const Pair z = Number::unpack(record.saved[Z]), n = Number::unpack(record.saved[N]);
            const Pair dy = Number::unpack(record.d_output);
            r = Number::unpack(record.saved[R]);
            h = Number::unpack(record.h_entering);
            dh = {dh.x + dy.x, dh.y + dy.y};
            d_n = Cell::d_candidate(dh, z, n);
            d_z = Cell::d_update(dh, h, z, n);
            kept = {dh.x * z.x, dh.y * z.y};
        }
        if (owner) {
            candidate.put(map, turn, 0, pack(d_n));
            gates.put(map, turn, Z, pack(d_z));
        }
        sync_block();  // they are written; the sums of the step after have been read and cleared
        candidate.send(turn, turn);
        typename BackwardGates::Tile sums[BackwardGates::SHARE] = {};
        gates.begin<OF_Z>(turn, sums);
        if (owner) {
            const Pair d_rh = candidate.collect(map, turn);
            if (record.real) {
                d_r = Cell::d_reset(d_rh, h, r);
                dh = {kept.x + d_rh.x * r.x, kept.y + d_rh.y * r.y};
            }
            gates.put(map, turn, R, pack(d_r));
        }
        sync_block();
        gates.finish<OF_Z>(turn, sums, turn ^ 1);

        if (!real_row) continue;
        const int t = map.time(step);
        const Pair found[GATES] = {d_r, d_z, d_n};
        uint16_t* to = a.d_gates + map.at(t, 0, 2 * PADDED_SIZE);
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) {
            const uint32_t word = pack(found[gate]);
            store_word(gate == N ? a.d_candidate + map.at(t, 0, PADDED_SIZE) : to + gate * PADDED_SIZE, word);
            store_d_input(a, map, row, t, gate, word);
            d_bias[gate] = {d_bias[gate].x + found[gate].x, d_bias[gate].y + found[gate].y};
        }
    }
    if (real_row) store_d_initial(a, map, row, dh, unused);
    if (owner) store_d_bias(a, map, d_bias);
    sync_cluster();
}
