// The LSTM with layer norm: LN(U h) instead of U h, and h = o∘tanh(LN(c)). The input's part is already normed.
//
// A norm needs two sums over all units of a row. Each block adds up its own units and sends the two numbers to all blocks,
// as it sends h: (T, B, 2, GROUP_BLOCKS, 2) floats, in `second_exchange` forward and in `d_candidate` backward. So a step
// has three exchanges. `unit_weights` (6, H) are the gains of LN(U h), gate by gate, and gain and shift of LN(c).
// `cell_states` (T, B, CELL_STATE_SIZE) holds c and, for both norms, mean and 1 / deviation.
#include <step.cuh>

constexpr int GATES_NORM = 0, CELL_NORM = 1;  // the two norms
constexpr int C_GAIN = 4, C_SHIFT = 5;        // of LN(c) in `unit_weights`
static_assert(GROUP_BLOCKS % 2 == 0);

using ForwardProduct = Product<GATES, WIDTH_TILES>;
using BackwardProduct = Product<1, GATES * WIDTH_TILES, true>;
using ForwardShared = Shared<GATES, 0, ForwardProduct>;
using BackwardShared = Shared<0, GATES + UNIT_WEIGHTS, BackwardProduct>;

// Sums over this block's units of a row, which neighbouring lanes own.
DEVICE Pair over_lanes(Pair sums) {
#pragma unroll
    for (int bits = 1; bits < BLOCK_UNITS / 2; bits *= 2)
        sums = {sums.x + shuffle_xor(sums.x, bits), sums.y + shuffle_xor(sums.y, bits)};
    return sums;
}

// Sums over all units of a row, from each thread's part. All threads of a warp call it, whether they own a row or not.
DEVICE Pair over_row(uint16_t* parts, const ThreadMap& map, bool owner, int t, int chunk, int norm, Pair part) {
    part = over_lanes(part);
    Pair total = {0.0f, 0.0f};
    if (owner) {
        const int64_t row = static_cast<int64_t>(t) * map.batch + map.batch_row(chunk);
        float* from = reinterpret_cast<float*>(parts) + (row * 2 + norm) * (2 * GROUP_BLOCKS);
        if (map.pair == 0) {
            float* mine = from + 2 * (map.first_unit / BLOCK_UNITS);
            store_exchanged(mine, bits_of(part.x));
            store_exchanged(mine + 1, bits_of(part.y));
        }
        for (int two = map.pair; two < GROUP_BLOCKS / 2; two += BLOCK_UNITS / 2) {
            Words words = load_exchanged(from + 4 * two);
            for (int polls = 0; is_empty(words); polls++) {
                if (polls > MAX_POLLS) trap();
                words = load_exchanged(from + 4 * two);
            }
            total = {total.x + float_of(words.x) + float_of(words.z), total.y + float_of(words.y) + float_of(words.w)};
        }
    }
    return over_lanes(total);
}

struct Norm {
    float mean, scale;  // 1 / deviation

    DEVICE float of(float number) const { return (number - mean) * scale; }
};
// From the sum of `count` numbers and the sum of their squares. The epsilon is torch's.
DEVICE Norm norm_of(Pair sums, float count) {
    const float mean = sums.x / count, variance = sums.y / count - mean * mean;
    return {mean, 1.0f / sqrtf((variance > 0.0f ? variance : 0.0f) + 1e-5f)};
}

// The unit weights of a thread's two units.
struct UnitWeights {
    Pair of[UNIT_WEIGHTS] = {};

    DEVICE UnitWeights(const Arguments& a, const ThreadMap& map) {
        if (!map.inside) return;
#pragma unroll
        for (int i = 0; i < UNIT_WEIGHTS; i++) of[i] = load_pair(a.unit_weights + i * HIDDEN_SIZE + map.unit());
    }
    DEVICE float at(int i, int which) const { return element(of[i], which); }
};

KERNEL forward(KERNEL_ARGUMENT Arguments a) {
    const ThreadMap map = map_threads(a);
    const ForwardShared shared(map.chunk_rows, map.chunks);
    const ForwardProduct product(a.weights, map, shared.of_first);
    const UnitWeights unit_weights(a, map);
    const float units = a.units;
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
            Pair raw[GATES] = {}, h = {}, c = {}, part = {};
            if (owner) {
                product.sum(map, step, chunk, raw);
                h = shared.first[map.slot(chunk)];
                c = shared.second[map.slot(chunk)];
            }
#pragma unroll
            for (int gate = 0; gate < GATES; gate++)
                part = {part.x + raw[gate].x + raw[gate].y,
                        part.y + raw[gate].x * raw[gate].x + raw[gate].y * raw[gate].y};
            const Norm of_gates =
                norm_of(over_row(a.second_exchange, map, owner, t, chunk, GATES_NORM, part), GATES * units);

            float gates[2][GATES], left[2], shown[2];
#pragma unroll
            for (int which = 0; which < 2; which++) {
                float sums[GATES];
#pragma unroll
                for (int gate = 0; gate < GATES; gate++)
                    sums[gate] = element(Number::unpack(words[gate]), which) +
                                 shared.bias[gate * BLOCK_UNITS + 2 * map.pair + which] +
                                 unit_weights.at(gate, which) * of_gates.of(element(raw[gate], which));
                gates[which][0] = sigmoid(sums[0]);
                gates[which][1] = sigmoid(sums[1]);
                gates[which][2] = tanh_of(sums[2]);
                gates[which][3] = sigmoid(sums[3]);
                left[which] = gates[which][1] * element(c, which) + gates[which][0] * gates[which][2];
            }
            part = {left[0] + left[1], left[0] * left[0] + left[1] * left[1]};
            const Norm of_c = norm_of(over_row(a.second_exchange, map, owner, t, chunk, CELL_NORM, part), units);
#pragma unroll
            for (int which = 0; which < 2; which++)
                shown[which] = gates[which][3] * tanh_of(unit_weights.at(C_GAIN, which) * of_c.of(left[which]) +
                                                         unit_weights.at(C_SHIFT, which));
            if (!owner) continue;

            const Pair h_left = real ? Pair{shown[0], shown[1]} : h, c_left = real ? Pair{left[0], left[1]} : c;
            end_step(a, map, shared, chunk, step, real, h_left, c_left);
            if (a.saved == nullptr) continue;
            uint16_t* to = saved_at(a, map, chunk, t, 0);
#pragma unroll
            for (int gate = 0; gate < GATES; gate++) {
                store_word(to + gate * PADDED_SIZE, Number::pack(gates[0][gate], gates[1][gate]));
                store_word(to + (GATES + gate) * PADDED_SIZE, Number::pack(raw[gate].x, raw[gate].y));
            }
            float* kept = a.cell_states + map.at(t, chunk, CELL_STATE_SIZE) - map.unit();
            store_pair(kept + map.unit(), c_left);
            if (map.unit() == 0) {
                store_pair(kept + PADDED_SIZE, {of_gates.mean, of_gates.scale});
                store_pair(kept + PADDED_SIZE + 2, {of_c.mean, of_c.scale});
            }
        }
    }
}

// The inputs of a backward step, with the statistics of both norms.
struct NormRecord : StepRecord {
    Norm of_gates, of_c;

    DEVICE void load(const Arguments& a, const ThreadMap& map, int chunk, int step) {
        StepRecord::load(a, map, chunk, step);
        if (!real) return;
        const float* kept = a.cell_states + map.at(map.time(step), chunk, CELL_STATE_SIZE) - map.unit() + PADDED_SIZE;
        const Pair gates = load_pair(kept), c = load_pair(kept + 2);
        of_gates = {gates.x, gates.y};
        of_c = {c.x, c.y};
    }
};

// `d_gates` (T, B, GATES * PADDED_SIZE), the gradients of U h, is the exchange; `d_gates_x` are those of the input's part.
KERNEL backward(KERNEL_ARGUMENT Arguments a) {
    const ThreadMap map = map_threads(a);
    const BackwardShared shared(map.chunk_rows, map.chunks);
    const BackwardProduct product(a.weights, map, shared.of_first);
    const UnitWeights unit_weights(a, map);
    const Accumulator accumulator(shared.accumulators, GATES + UNIT_WEIGHTS);
    const float units = a.units;
    begin_backward(a, map, shared);

    for (int step = map.steps - 1; step >= -1; step--) {  // at -1 the gradients are those of the initial state
        const bool first = step == map.steps - 1;
        const int t = step < 0 ? 0 : map.time(step), after = first ? 0 : map.time(step + 1);
        for (int chunk = 0; chunk < map.chunks; chunk++) {
            const bool owner = map.has_row(chunk);
            const int64_t row = map.batch_row(chunk);
            NormRecord record = {};
            if (owner && step >= 0) record.load(a, map, chunk, step);
            if (!first) product.gather(a.d_gates + map.first_of_chunk(after, chunk, GATES * PADDED_SIZE), map, step, chunk);
            Pair dh = {}, dc = {};
            if (owner) add_gathered(a, map, product, shared, chunk, step, dh, dc);
            if (step < 0) {
                if (owner) store_d_initial(a, map, row, dh, dc);
                continue;
            }

            // through o∘tanh(LN(c))
            float normed[2], d_shown[2], d_o[2], d_normed[2];
            Pair part = {};
#pragma unroll
            for (int which = 0; which < 2; which++) {
                const float o = record.at(3, which), d_h = element(dh, which) + element(Number::unpack(record.d_output), which);
                normed[which] = record.of_c.of(element(record.c_left, which));
                const float shown = tanh_of(unit_weights.at(C_GAIN, which) * normed[which] + unit_weights.at(C_SHIFT, which));
                d_o[which] = d_h * shown * o * (1.0f - o);
                d_shown[which] = record.real ? d_h * o * (1.0f - shown * shown) : 0.0f;
                d_normed[which] = d_shown[which] * unit_weights.at(C_GAIN, which);
                part = {part.x + d_normed[which], part.y + d_normed[which] * normed[which]};
            }
            const Pair of_c = over_row(a.d_candidate, map, owner, t, chunk, CELL_NORM, part);

            // through the gates, to LN(U h)
            float d_sums[2][GATES], hats[2][GATES], dc_entering[2];
            part = {0.0f, 0.0f};
#pragma unroll
            for (int which = 0; which < 2; which++) {
                const float i = record.at(0, which), f = record.at(1, which), g = record.at(2, which);
                const float d_c = element(dc, which) +
                                  record.of_c.scale * (d_normed[which] - of_c.x / units - normed[which] * (of_c.y / units));
                const float found[GATES] = {d_c * g * i * (1.0f - i), d_c * element(record.c_entering, which) * f * (1.0f - f),
                                            d_c * i * (1.0f - g * g), d_o[which]};
                dc_entering[which] = d_c * f;
#pragma unroll
                for (int gate = 0; gate < GATES; gate++) {
                    d_sums[which][gate] = record.real ? found[gate] : 0.0f;
                    hats[which][gate] = record.of_gates.of(record.at(GATES + gate, which));
                    const float d_hat = d_sums[which][gate] * unit_weights.at(gate, which);
                    part = {part.x + d_hat, part.y + d_hat * hats[which][gate]};
                }
            }
            const Pair of_gates = over_row(a.d_candidate, map, owner, t, chunk, GATES_NORM, part);
            if (!owner) continue;

            const float mean = of_gates.x / (GATES * units), along = of_gates.y / (GATES * units);
            uint16_t* to = a.d_gates + map.at(t, chunk, GATES * PADDED_SIZE);
#pragma unroll
            for (int gate = 0; gate < GATES; gate++) {
                float d_raw[2];
#pragma unroll
                for (int which = 0; which < 2; which++)
                    d_raw[which] = record.of_gates.scale *
                                   (d_sums[which][gate] * unit_weights.at(gate, which) - mean - hats[which][gate] * along);
                store_exchanged(to + gate * PADDED_SIZE, record.real ? Number::pack(d_raw[0], d_raw[1]) : 0u);
            }
#pragma unroll
            for (int gate = 0; gate < GATES; gate++) {
                const float low = d_sums[0][gate], high = d_sums[1][gate];
                store_d_input(a, map, row, t, gate, Number::pack(low, high));
                accumulator.add(gate, low, high);
                if (record.real) accumulator.add(GATES + gate, low * hats[0][gate], high * hats[1][gate]);
            }
            if (record.real) {
                accumulator.add(GATES + C_GAIN, d_shown[0] * normed[0], d_shown[1] * normed[1]);
                accumulator.add(GATES + C_SHIFT, d_shown[0], d_shown[1]);
                dh = {0.0f, 0.0f};
                dc = {dc_entering[0], dc_entering[1]};
            }
            shared.first[map.slot(chunk)] = dh;
            shared.second[map.slot(chunk)] = dc;
        }
    }
    write_accumulators<GATES>(map, accumulator, 0, a.d_bias);
    write_accumulators<UNIT_WEIGHTS>(map, accumulator, GATES, a.d_unit_weights);
}
