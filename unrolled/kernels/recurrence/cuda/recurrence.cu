// A recurrence whose step is one product and an element-wise part: RNN, LSTM with and without peepholes, GRU.
#include <cell_step.cuh>

using ForwardProduct = Product<GATES, WIDTH_TILES>;
using BackwardProduct = Product<1, GATES * WIDTH_TILES, true>;
using ForwardShared = Shared<GATES, 0, ForwardProduct>;
using BackwardShared = Shared<0, GATES + UNIT_WEIGHTS, BackwardProduct>;

KERNEL forward(KERNEL_ARGUMENT Arguments a) {
    const ThreadMap map = map_threads(a);
    const ForwardShared shared(map.chunk_rows, map.chunks);
    const ForwardProduct product(a.weights, map, shared.of_first);
    float unit_weights[2][3] = {};
    load_unit_weights(a, map, unit_weights[0], unit_weights[1]);
    begin_forward(a, map, shared);

    for (int step = 0; step < map.steps; step++) {
        const int t = map.time(step);
        for (int chunk = 0; chunk < map.chunks; chunk++) {
            const bool owner = map.has_row(chunk);
            const int64_t row = map.batch_row(chunk);
            uint32_t words[GATES] = {};
            bool real = false;
            if (owner) {
#pragma unroll
                for (int gate = 0; gate < GATES; gate++) words[gate] = input_word(a, map, row, t, gate);
                real = is_real(a, row, t);
            }
            product.gather(a.exchange + map.first_of_chunk(t, chunk, PADDED_SIZE), map, step, chunk);
            if (!owner) continue;

            Pair sums[GATES];
            product.sum(map, step, chunk, sums);
            const Pair h = shared.first[map.slot(chunk)], c = shared.second[map.slot(chunk)];
            Pair bias[GATES];
#pragma unroll
            for (int gate = 0; gate < GATES; gate++)
                bias[gate] = load_pair(shared.bias + gate * BLOCK_UNITS + 2 * map.pair);
            const CellStep made(words, bias, sums, unit_weights, h, c);
            const Pair h_left = real ? Pair{made.low.h, made.high.h} : h, c_left = real ? Pair{made.low.c, made.high.c} : c;
            end_step(a, map, shared, chunk, step, real, h_left, c_left);
            if (a.saved != nullptr) made.save(a, map, chunk, t, c_left);
        }
    }
}

// `d_gates` (T, B, GATES * PADDED_SIZE) is the exchange.
KERNEL backward(KERNEL_ARGUMENT Arguments a) {
    const ThreadMap map = map_threads(a);
    const BackwardShared shared(map.chunk_rows, map.chunks);
    const BackwardProduct product(a.weights, map, shared.of_first);
    float unit_weights[2][3] = {};
    load_unit_weights(a, map, unit_weights[0], unit_weights[1]);
    const Accumulator accumulator(shared.accumulators, GATES + UNIT_WEIGHTS);
    begin_backward(a, map, shared);

    for (int step = map.steps - 1; step >= -1; step--) {  // at -1 the gradients are those of the initial state
        const bool first = step == map.steps - 1;
        const int after = first ? 0 : map.time(step + 1);
        for (int chunk = 0; chunk < map.chunks; chunk++) {
            const bool owner = map.has_row(chunk);
            const int64_t row = map.batch_row(chunk);
            StepRecord record = {};
            if (owner && step >= 0) record.load(a, map, chunk, step);
            if (!first)
                product.gather(a.d_gates + map.first_of_chunk(after, chunk, GATES * PADDED_SIZE), map, step, chunk);
            if (!owner) continue;

            Pair dh, dc;
            add_gathered(a, map, product, shared, chunk, step, dh, dc);
            if (step < 0) {
                store_d_initial(a, map, row, dh, dc);
                continue;
            }
            const int t = map.time(step);
            StepGradients<GATES> low = {{}, 0.0f, dh.x, dc.x, {}}, high = {{}, 0.0f, dh.y, dc.y, {}};
            if (record.real) {
                low = step_back(record, 0, unit_weights[0], dh, dc);
                high = step_back(record, 1, unit_weights[1], dh, dc);
            }
            uint16_t* to = a.d_gates + map.at(t, chunk, GATES * PADDED_SIZE);
#pragma unroll
            for (int gate = 0; gate < GATES; gate++)
                store_exchanged(to + gate * PADDED_SIZE, Number::pack(low.du[gate], high.du[gate]));
#pragma unroll
            for (int gate = 0; gate < GATES; gate++) {
                const Pair d_x = input_gradient(low, high, gate);
                store_d_input(a, map, row, t, gate, pack(d_x));
                accumulator.add(gate, d_x.x, d_x.y);
            }
#pragma unroll
            for (int i = 0; i < UNIT_WEIGHTS; i++)
                accumulator.add(GATES + i, low.d_unit_weights[i], high.d_unit_weights[i]);
            shared.first[map.slot(chunk)] = {low.dh, high.dh};
            shared.second[map.slot(chunk)] = {low.dc, high.dc};
        }
    }
    write_accumulators<GATES>(map, accumulator, 0, a.d_bias);
    write_accumulators<UNIT_WEIGHTS>(map, accumulator, GATES, a.d_unit_weights);
}
