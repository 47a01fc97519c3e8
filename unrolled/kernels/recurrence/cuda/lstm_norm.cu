// The LSTM with layer norm: LN(U h) in place of U h, and h = o∘tanh(LN(c)). Its input's part has been normed before.
//
// A norm needs two sums over all units of a row. Each block adds up its own units, and shows the two numbers to all others as
// it shows h: (T, B, 2, SLICES, 2), which are `second_exchange` forward and `d_candidate` back. So a step has three exchanges.
// `own` (6, H) are the gains of LN(U h), gate by gate, gain and shift of LN(c). `memory` (T, B, HIDDEN + 4) holds c and,
// for both norms, mean and 1 / deviation. Compiled as recurrence.cu is.
#include <device.cuh>

#include <arguments.h>
#include <weights.cuh>
#include <shared.cuh>
#include <place.cuh>
#include <product.cuh>
#include <bias.cuh>

using Number = NUMBER_TYPE;
constexpr int GATES = 4, OWN = 6, SAVED = 8, SLICES = HIDDEN / UNITS, MEMORY = HIDDEN + 4;
constexpr int GATES_NORM = 0, MEMORY_NORM = 1, OF_C = 4;  // the two norms; LN(c)'s gain in `own`, its shift after it
static_assert(SLICES % 2 == 0);

using ForwardProduct = Product<Number, GATES, WIDTH>;
using BackwardProduct = Product<Number, 1, GATES * WIDTH, true>;
using ForwardShared = Shared<GATES, 0, ForwardProduct>;
using BackwardShared = Shared<0, GATES + OWN, BackwardProduct>;

// Over this block's units of a row, which neighbouring lanes have.
DEVICE Pair over_lanes(Pair sums) {
#pragma unroll
    for (int bits = 1; bits < UNITS / 2; bits *= 2)
        sums = {sums.x + from_lane_across(sums.x, bits), sums.y + from_lane_across(sums.y, bits)};
    return sums;
}

// Over all units of a row, from each thread's part. Every thread of a warp comes here, whether it owns a row or not.
DEVICE Pair over_row(uint16_t* parts, const Place& place, bool owner, int t, int chunk, int norm, Pair part) {
    part = over_lanes(part);
    Pair total = {0.0f, 0.0f};
    if (owner) {
        const int64_t row = static_cast<int64_t>(t) * place.batch + place.batch_row(chunk);
        float* from = reinterpret_cast<float*>(parts) + (row * 2 + norm) * (2 * SLICES);
        if (place.pair == 0) {
            float* mine = from + 2 * (place.first_unit / UNITS);
            store_exchanged(mine, bits_of(part.x));
            store_exchanged(mine + 1, bits_of(part.y));
        }
        for (int two = place.pair; two < SLICES / 2; two += UNITS / 2) {
            Words words = load_exchanged(from + 4 * two);
            for (int waits = 0; is_missing(words); waits++) {
                if (waits > MOST_WAITS) give_up();
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
// from the sum of `count` numbers and that of their squares
DEVICE Norm norm_of(Pair sums, float count) {
    const float mean = sums.x / count, variance = sums.y / count - mean * mean;
    return {mean, 1.0f / sqrtf((variance > 0.0f ? variance : 0.0f) + 1e-5f)};
}

// A unit's own weights, of the two units of a thread.
struct Own {
    Pair of[OWN] = {};

    DEVICE Own(const Arguments& a, const Place& place) {
        if (!place.inside) return;
#pragma unroll
        for (int i = 0; i < OWN; i++) of[i] = load_pair(a.own + i * REAL_UNITS + place.unit());
    }
    DEVICE float at(int i, int which) const { return which == 0 ? of[i].x : of[i].y; }
};

DEVICE float part_of(Pair pair, int which) { return which == 0 ? pair.x : pair.y; }

KERNEL forward(GIVEN Arguments a) {
    const Place place = place_of_thread(a, SLICES);
    const ForwardShared shared(place.chunk_rows, place.chunks);
    const ForwardProduct product(a.weights, place, shared.of_first);
    const Own own(a, place);
    const float units = a.units;
    for (int i = thread_index(); i < GATES * UNITS; i += THREADS) {
        const int gate = i / UNITS, unit = place.first_unit + i % UNITS;
        shared.bias[i] = unit < REAL_UNITS ? added_bias<Number, true>(a, gate * REAL_UNITS + unit) : 0.0f;
    }
    for (int chunk = 0; chunk < place.chunks; chunk++) {
        if (!place.has_row(chunk)) continue;
        const int64_t row = place.batch_row(chunk);
        const Pair h = state_pair<Number>(a.h_initial, place, row), c = state_pair<Number>(a.c_initial, place, row);
        enter<Number>(a, place, shared.first, shared.second, chunk, place.time(0), h, c);
    }
    sync_block();

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
            Pair raw[GATES] = {}, h = {}, c = {}, part = {};
            if (owner) {
                product.sum(place, step, chunk, raw);
                h = shared.first[place.slot(chunk)];
                c = shared.second[place.slot(chunk)];
            }
#pragma unroll
            for (int gate = 0; gate < GATES; gate++)
                part = {part.x + raw[gate].x + raw[gate].y,
                        part.y + raw[gate].x * raw[gate].x + raw[gate].y * raw[gate].y};
            const Norm of_gates =
                norm_of(over_row(a.second_exchange, place, owner, t, chunk, GATES_NORM, part), GATES * units);

            float gates[2][GATES], left[2], shown[2];
#pragma unroll
            for (int which = 0; which < 2; which++) {
                float sums[GATES];
#pragma unroll
                for (int gate = 0; gate < GATES; gate++)
                    sums[gate] = part_of(Number::unpack(words[gate]), which) + shared.bias[gate * UNITS + 2 * place.pair + which] +
                                 own.at(gate, which) * of_gates.of(part_of(raw[gate], which));
                gates[which][0] = sigmoid(sums[0]);
                gates[which][1] = sigmoid(sums[1]);
                gates[which][2] = tanh_of(sums[2]);
                gates[which][3] = sigmoid(sums[3]);
                left[which] = gates[which][1] * part_of(c, which) + gates[which][0] * gates[which][2];
            }
            part = {left[0] + left[1], left[0] * left[0] + left[1] * left[1]};
            const Norm of_c = norm_of(over_row(a.second_exchange, place, owner, t, chunk, MEMORY_NORM, part), units);
#pragma unroll
            for (int which = 0; which < 2; which++)
                shown[which] = gates[which][3] * tanh_of(own.at(OF_C, which) * of_c.of(left[which]) + own.at(OF_C + 1, which));
            if (!owner) continue;

            const Pair h_left = real ? Pair{shown[0], shown[1]} : h, c_left = real ? Pair{left[0], left[1]} : c;
            if (step + 1 < place.steps) {
                enter<Number>(a, place, shared.first, shared.second, chunk, place.time(step + 1), h_left, c_left);
            } else {
                store_state<Number>(a.h_final, place, row, h_left);
                store_state<Number>(a.c_final, place, row, c_left);
            }
            store_output(a, place, row, t, real ? Number::pack(h_left.x, h_left.y) : 0u);
            if (a.saved == nullptr) continue;
            uint16_t* to = a.saved + place.at(t, chunk, SAVED * HIDDEN);
#pragma unroll
            for (int gate = 0; gate < GATES; gate++) {
                store_word(to + gate * HIDDEN, Number::pack(gates[0][gate], gates[1][gate]));
                store_word(to + (GATES + gate) * HIDDEN, Number::pack(raw[gate].x, raw[gate].y));
            }
            float* kept = a.memory + place.at(t, chunk, MEMORY) - place.unit();
            store_pair(kept + place.unit(), c_left);
            if (place.unit() == 0) {
                store_pair(kept + HIDDEN, {of_gates.mean, of_gates.scale});
                store_pair(kept + HIDDEN + 2, {of_c.mean, of_c.scale});
            }
        }
    }
}

// What a step back needs, but for the gradient that comes from the steps after it.
struct Known {
    uint32_t saved[SAVED], d_output;
    Pair c_entering, c_left;
    Norm of_gates, of_c;
    bool real;

    DEVICE void load(const Arguments& a, const Place& place, int chunk, int step) {
        const int t = place.time(step);
        const int64_t row = place.batch_row(chunk);
        real = is_real(a, row, t);
        if (!real) return;
#pragma unroll
        for (int i = 0; i < SAVED; i++) saved[i] = load_word(a.saved + place.at(t, chunk, SAVED * HIDDEN) + i * HIDDEN);
        d_output = d_output_word(a, place, row, t);
        const float* kept = a.memory + place.at(t, chunk, MEMORY) - place.unit();
        c_left = load_pair(kept + place.unit());
        const Pair gates = load_pair(kept + HIDDEN), memory = load_pair(kept + HIDDEN + 2);
        of_gates = {gates.x, gates.y};
        of_c = {memory.x, memory.y};
        if (is_reset(a, row, t)) {
            c_entering = state_pair<Number>(a.c_reset, place, row);
        } else if (step == 0) {
            c_entering = state_pair<Number>(a.c_initial, place, row);
        } else {
            c_entering = load_pair(a.memory + place.at(place.time(step - 1), chunk, MEMORY));
        }
    }
    DEVICE float at(int i, int which) const { return part_of(Number::unpack(saved[i]), which); }
};

// `d_gates` (T, B, GATES * HIDDEN), the gradients of U h, is the exchange; `d_gates_x` has those of what is added to LN(U h).
KERNEL backward(GIVEN Arguments a) {
    const Place place = place_of_thread(a, SLICES);
    const BackwardShared shared(place.chunk_rows, place.chunks);
    const BackwardProduct product(a.weights, place, shared.of_first);
    const Own own(a, place);
    const Tally tally(shared.tally, GATES + OWN);
    const float units = a.units;
    for (int chunk = 0; chunk < place.chunks; chunk++) {
        if (!place.has_row(chunk)) continue;
        const int64_t row = place.batch_row(chunk);
        shared.first[place.slot(chunk)] = state_pair<Number>(a.d_h_final, place, row);
        shared.second[place.slot(chunk)] = state_pair<Number>(a.d_c_final, place, row);
    }
    sync_block();

    for (int step = place.steps - 1; step >= -1; step--) {  // at -1 what is left is the initial state's
        const bool first = step == place.steps - 1;
        const int t = step < 0 ? 0 : place.time(step), after = first ? 0 : place.time(step + 1);
        for (int chunk = 0; chunk < place.chunks; chunk++) {
            const bool owner = place.has_row(chunk);
            const int64_t row = place.batch_row(chunk);
            Known known = {};
            if (owner && step >= 0) known.load(a, place, chunk, step);
            if (!first) product.gather(a.d_gates + place.first_of_chunk(after, chunk, GATES * HIDDEN), place, step, chunk);
            Pair dh = {}, dc = {};
            if (owner) {
                dh = shared.first[place.slot(chunk)];
                dc = shared.second[place.slot(chunk)];
                if (!first) {
                    Pair through[1];
                    product.sum(place, step, chunk, through);
                    dh = {dh.x + through[0].x, dh.y + through[0].y};
                    leave(a, place, row, after, dh, dc);
                }
            }
            if (step < 0) {
                if (!owner) continue;
                store_state<Number>(a.d_h_initial, place, row, dh);
                store_state<Number>(a.d_c_initial, place, row, dc);
                continue;
            }

            // through o∘tanh(LN(c))
            float normed[2], d_shown[2], d_o[2], d_normed[2];
            Pair part = {};
#pragma unroll
            for (int which = 0; which < 2; which++) {
                const float o = known.at(3, which), d_h = part_of(dh, which) + part_of(Number::unpack(known.d_output), which);
                normed[which] = known.of_c.of(part_of(known.c_left, which));
                const float shown = tanh_of(own.at(OF_C, which) * normed[which] + own.at(OF_C + 1, which));
                d_o[which] = d_h * shown * o * (1.0f - o);
                d_shown[which] = known.real ? d_h * o * (1.0f - shown * shown) : 0.0f;
                d_normed[which] = d_shown[which] * own.at(OF_C, which);
                part = {part.x + d_normed[which], part.y + d_normed[which] * normed[which]};
            }
            const Pair of_c = over_row(a.d_candidate, place, owner, t, chunk, MEMORY_NORM, part);

            // through the gates, to LN(U h)
            float d_sums[2][GATES], hats[2][GATES], dc_entering[2];
            part = {0.0f, 0.0f};
#pragma unroll
            for (int which = 0; which < 2; which++) {
                const float i = known.at(0, which), f = known.at(1, which), g = known.at(2, which);
                const float d_c = part_of(dc, which) +
                                  known.of_c.scale * (d_normed[which] - of_c.x / units - normed[which] * (of_c.y / units));
                const float found[GATES] = {d_c * g * i * (1.0f - i), d_c * part_of(known.c_entering, which) * f * (1.0f - f),
                                            d_c * i * (1.0f - g * g), d_o[which]};
                dc_entering[which] = d_c * f;
#pragma unroll
                for (int gate = 0; gate < GATES; gate++) {
                    d_sums[which][gate] = known.real ? found[gate] : 0.0f;
                    hats[which][gate] = known.of_gates.of(known.at(GATES + gate, which));
                    const float d_hat = d_sums[which][gate] * own.at(gate, which);
                    part = {part.x + d_hat, part.y + d_hat * hats[which][gate]};
                }
            }
            const Pair of_gates = over_row(a.d_candidate, place, owner, t, chunk, GATES_NORM, part);
            if (!owner) continue;

            const float mean = of_gates.x / (GATES * units), along = of_gates.y / (GATES * units);
            uint16_t* to = a.d_gates + place.at(t, chunk, GATES * HIDDEN);
#pragma unroll
            for (int gate = 0; gate < GATES; gate++) {
                float d_raw[2];
#pragma unroll
                for (int which = 0; which < 2; which++)
                    d_raw[which] = known.of_gates.scale *
                                   (d_sums[which][gate] * own.at(gate, which) - mean - hats[which][gate] * along);
                store_exchanged(to + gate * HIDDEN, known.real ? Number::pack(d_raw[0], d_raw[1]) : 0u);
            }
#pragma unroll
            for (int gate = 0; gate < GATES; gate++) {
                const float low = d_sums[0][gate], high = d_sums[1][gate];
                store_d_input<true>(a, place, row, t, GATES, gate, Number::pack(low, high));
                tally.add(gate, low, high);
                if (known.real) tally.add(GATES + gate, low * hats[0][gate], high * hats[1][gate]);
            }
            if (known.real) {
                tally.add(GATES + OF_C, d_shown[0] * normed[0], d_shown[1] * normed[1]);
                tally.add(GATES + OF_C + 1, d_shown[0], d_shown[1]);
                dh = {0.0f, 0.0f};
                dc = {dc_entering[0], dc_entering[1]};
            }
            shared.first[place.slot(chunk)] = dh;
            shared.second[place.slot(chunk)] = dc;
        }
    }
    write_tally<GATES>(place, tally, 0, a.d_bias);
    write_tally<OWN>(place, tally, GATES, a.d_own);
}
