// Reads and writes of the buffers in `Arguments`, for the two units of a thread. Padding units are zero and not written.
#pragma once

DEVICE bool is_real(const Arguments& a, int64_t row, int t) { return a.lengths == nullptr || t < a.lengths[row]; }
DEVICE bool is_reset(const Arguments& a, int64_t row, int t) {
    return a.resets != nullptr && a.resets[row * a.resets_row + t * a.resets_step];
}

DEVICE uint32_t load_word(const uint16_t* from) { return *reinterpret_cast<const uint32_t*>(from); }
DEVICE void store_word(uint16_t* to, uint32_t word) { *reinterpret_cast<uint32_t*>(to) = word; }
DEVICE Pair load_pair(const float* from) { return *reinterpret_cast<const Pair*>(from); }
DEVICE void store_pair(float* to, Pair pair) { *reinterpret_cast<Pair*>(to) = pair; }
DEVICE void add_pair(float* to, Pair pair) { store_pair(to, {to[0] + pair.x, to[1] + pair.y}); }
DEVICE uint32_t pack(Pair pair) { return Number::pack(pair.x, pair.y); }
DEVICE float element(Pair pair, int which) { return which == 0 ? pair.x : pair.y; }

// A state (B, HIDDEN_SIZE) of floats or 16-bit numbers. A null pointer is a state of zeros.
DEVICE Pair load_state(const float* states, const ThreadMap& map, int64_t row) {
    if (states == nullptr || !map.inside) return {0.0f, 0.0f};
    return load_pair(states + row * HIDDEN_SIZE + map.unit());
}
DEVICE Pair load_state(const uint16_t* states, const ThreadMap& map, int64_t row) {
    if (states == nullptr || !map.inside) return {0.0f, 0.0f};
    return Number::unpack(load_word(states + row * HIDDEN_SIZE + map.unit()));
}
DEVICE void store_state(uint16_t* states, const ThreadMap& map, int64_t row, Pair state) {
    if (map.inside && states != nullptr) store_word(states + row * HIDDEN_SIZE + map.unit(), pack(state));
}

// The input's part of a gate.
DEVICE uint32_t input_word(const Arguments& a, const ThreadMap& map, int64_t row, int t, int gate) {
    if (!map.inside) return 0u;
    return load_word(a.gates_x + row * a.gates_x_row + t * a.gates_x_step + gate * HIDDEN_SIZE + map.unit());
}
DEVICE float unit_bias(const Arguments& a, int gate, int unit) {
    return unit < HIDDEN_SIZE ? added_bias(a, gate, gate * HIDDEN_SIZE + unit) : 0.0f;
}
DEVICE void store_output(const Arguments& a, const ThreadMap& map, int64_t row, int t, uint32_t word) {
    if (map.inside) store_word(a.output + row * a.output_row + t * a.output_step + map.unit(), word);
}
DEVICE uint32_t d_output_word(const Arguments& a, const ThreadMap& map, int64_t row, int t) {
    if (a.d_output == nullptr || !map.inside) return 0u;
    return load_word(a.d_output + row * a.d_output_row + t * a.d_output_step + map.unit());
}
// The gradient of the input's part, (T, B, GATES * HIDDEN_SIZE), where it is not the exchange itself.
DEVICE void store_d_input(const Arguments& a, const ThreadMap& map, int64_t row, int t, int gate, uint32_t word) {
    if (!(SEPARATE_INPUT_GRADIENT || HIDDEN_SIZE < PADDED_SIZE) || !map.inside) return;
    const int64_t at = ((static_cast<int64_t>(t) * map.batch + row) * GATES + gate) * HIDDEN_SIZE + map.unit();
    store_word(a.d_gates_x + at, word);
}
// The gates (T, B, SAVED * PADDED_SIZE) that the forward pass saves for the backward pass.
DEVICE uint16_t* saved_at(const Arguments& a, const ThreadMap& map, int chunk, int t, int which) {
    return a.saved + map.at(t, chunk, SAVED * PADDED_SIZE) + which * PADDED_SIZE;
}

// What a thread summed up, written to (S, COUNT, PADDED_SIZE) unless `to` is null.
template <int COUNT>
DEVICE void write_accumulators(const ThreadMap& map, const Accumulator& accumulator, int first, float* to) {
    if (to == nullptr || map.row >= map.chunk_rows) return;
    for (int i = 0; i < COUNT; i++)
        store_pair(to + (map.accumulator_row * COUNT + i) * PADDED_SIZE + map.unit(), accumulator.sums(first + i));
}
