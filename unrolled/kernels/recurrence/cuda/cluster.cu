// The recurrences of recurrence.cu for up to 512 units: the blocks of a group are a cluster, and exchange through their
// shared memories instead of the cache.
#include <cell_step.cuh>
#include <cluster_step.cuh>

using ForwardProduct = Product<GATES, WIDTH_TILES, false, true>;

struct ForwardShared {
    static constexpr int bytes(int, int) { return Broadcast::bytes() + ForwardProduct::bytes(ROWS); }
};

KERNEL forward(KERNEL_ARGUMENT Arguments a) {
    const ThreadMap map = map_threads(a);
    const int64_t row = map.batch_row(0);
    const bool owner = thread_index() < OWNERS, real_row = owner && map.has_row(0);
    const Broadcast entering(shared_memory());  // h
    const ForwardProduct product(a.weights, map, shared_memory() + Broadcast::bytes());
    float unit_weights[2][3] = {};
    Pair bias[GATES] = {}, h = {}, c = {};
    GateInputs inputs;
    if (real_row) {
        load_unit_weights(a, map, unit_weights[0], unit_weights[1]);
        h = load_state(a.h_initial, map, row);
        c = load_state(a.c_initial, map, row);
        load_biases(a, map, bias);
        inputs.load(a, map, row, 0);
    }
    sync_cluster();
    const auto enter = make_enter(a, map, entering, row, real_row, h, c);
    if (owner) enter(0);

    for (int step = 0; step < map.steps; step++) {
        const int t = map.time(step);
        bool real = false;
        if (real_row) {
            inputs.advance(a, map, row, step);
            real = is_real(a, row, t);
        }
        product.gather_cluster(entering.buffer(step), Broadcast::PITCH, step);
        if (!owner) continue;

        Pair sums[GATES];
        product.sum_cluster(map, step, sums);
        const CellStep made(inputs.now, bias, sums, unit_weights, h, c);
        if (real) {
            h = {made.low.h, made.high.h};
            c = {made.low.c, made.high.c};
        }
        const Pair h_left = h, c_left = c;
        if (step + 1 < map.steps) enter(step + 1);  // other blocks wait for it
        if (!real_row) continue;
        store_output(a, map, row, t, real ? pack(h_left) : 0u);
        if (a.saved != nullptr) made.save(a, map, 0, t, c_left);
    }
    if (real_row) {
        store_state(a.h_final, map, row, h);
        if (HAS_CELL_STATE) store_state(a.c_final, map, row, c);
    }
    sync_cluster();  // no block ends while others write to its memory
}

using BackwardSums = ReduceScatter<GATES * BLOCK_UNITS>;

struct BackwardShared {
    static constexpr int ACCUMULATORS = BackwardSums::bytes();  // offset of the gradients of unit weights
    static constexpr int bytes(int, int) { return ACCUMULATORS + 2 * UNIT_WEIGHTS * THREADS * 4; }
};

KERNEL backward(KERNEL_ARGUMENT Arguments a) {
    const ThreadMap map = map_sums(a);
    const int64_t row = map.batch_row(0);
    const bool owner = thread_index() < OWNERS, real_row = owner && map.has_row(0);
    const BackwardSums gathered(a.weights, map, shared_memory());
    float unit_weights[2][3] = {};
    Pair d_bias[GATES] = {};
    const Accumulator accumulator(reinterpret_cast<float*>(shared_memory() + BackwardShared::ACCUMULATORS), UNIT_WEIGHTS);
    StepRecord ahead = {};
    sync_cluster();

    Pair dh = {}, dc = {};
    if (real_row) {
        load_unit_weights(a, map, unit_weights[0], unit_weights[1]);
        dh = load_state(a.d_h_final, map, row);
        dc = load_state(a.d_c_final, map, row);
        ahead.load(a, map, 0, map.steps - 1);
    }
    for (int step = map.steps - 1; step >= -1; step--) {  // at -1 the gradients are those of the initial state
        const int turn = step & 1;
        const StepRecord record = ahead;
        if (real_row && step > 0) ahead.load(a, map, 0, step - 1);
        if (owner && step < map.steps - 1) add_collected(a, map, gathered, row, real_row, step, dh, dc);
        if (step < 0) break;

        const int t = map.time(step);
        StepGradients<GATES> low = {{}, 0.0f, dh.x, dc.x, {}}, high = {{}, 0.0f, dh.y, dc.y, {}};
        if (record.real) {
            low = step_back(record, 0, unit_weights[0], dh, dc);
            high = step_back(record, 1, unit_weights[1], dh, dc);
        }
        dh = {low.dh, high.dh};
        dc = {low.dc, high.dc};
#pragma unroll
        for (int gate = 0; gate < GATES && owner; gate++)
            gathered.put(map, turn, gate, Number::pack(low.du[gate], high.du[gate]));
        sync_block();  // this step's gates are written; the sums of the step after have been read and cleared
        gathered.send(turn, turn ^ 1);

        if (!real_row) continue;
        uint16_t* to = a.d_gates + map.at(t, 0, GATES * PADDED_SIZE);
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) {
            const Pair d_x = input_gradient(low, high, gate);
            store_word(to + gate * PADDED_SIZE, Number::pack(low.du[gate], high.du[gate]));
            store_d_input(a, map, row, t, gate, pack(d_x));
            d_bias[gate] = {d_bias[gate].x + d_x.x, d_bias[gate].y + d_x.y};
        }
#pragma unroll
        for (int i = 0; i < UNIT_WEIGHTS; i++) accumulator.add(i, low.d_unit_weights[i], high.d_unit_weights[i]);
    }
    if (real_row) store_d_initial(a, map, row, dh, dc);
    if (owner) store_d_bias(a, map, d_bias);
    if (owner) write_accumulators<UNIT_WEIGHTS>(map, accumulator, 0, a.d_unit_weights);
    sync_cluster();
}
