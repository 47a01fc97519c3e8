// Where a block and a thread stand: which units and rows of the batch are theirs, and what their steps are.
#pragma once

// A block owns UNITS units of one group of rows; the blocks of a group exchange numbers at every step. The group's rows
// are gone through in chunks. In a chunk, a thread owns two neighbouring units of one row, the same two in every chunk.
struct Place {
    int group_rows, chunk_rows, chunks, steps, batch;
    int64_t first_row;
    int rows;        // of this group
    int first_unit;  // of this block
    int row, pair;   // of this thread, in a chunk and in the block
    int64_t tally_slot;  // of what this thread sums up
    bool reverse;
    bool inside;  // whether this thread's units are real

    // thread (row, pair) of the block that has the units from `slice * UNITS` on
    DEVICE Place(const Arguments& a, int group, int slice, int row, int pair) : row(row), pair(pair) {
        group_rows = a.group_rows;
        chunk_rows = a.chunk_rows;
        steps = a.steps;
        batch = a.batch;
        first_row = a.first_row + static_cast<int64_t>(group) * group_rows;
        rows = a.end_row - first_row < group_rows ? a.end_row - first_row : group_rows;
        chunks = (rows + chunk_rows - 1) / chunk_rows;
        first_unit = slice * UNITS;
        tally_slot = a.first_slot + group * chunk_rows + row;
        reverse = a.reverse;
        inside = REAL_UNITS == HIDDEN || unit() < REAL_UNITS;
    }

    DEVICE int unit() const { return first_unit + 2 * pair; }
    DEVICE int time(int step) const { return reverse ? steps - 1 - step : step; }
    DEVICE int rows_of(int chunk) const {
        const int left = rows - chunk * chunk_rows;
        return left < chunk_rows ? left : chunk_rows;
    }
    DEVICE bool has_row(int chunk) const { return row < rows_of(chunk); }
    // of this thread's pair among those that the block keeps
    DEVICE int slot(int chunk) const { return (chunk * chunk_rows + row) * (UNITS / 2) + pair; }
    DEVICE int64_t batch_row(int chunk) const { return first_row + chunk * chunk_rows + row; }
    // of a buffer (T, B, width)
    DEVICE int64_t first_of_chunk(int t, int chunk, int width) const {
        return (static_cast<int64_t>(t) * batch + first_row + chunk * chunk_rows) * width;
    }
    DEVICE int64_t at(int t, int chunk, int width) const { return first_of_chunk(t, chunk, width) + row * width + unit(); }
};

// In blocks of which `slices` make a group, neighbouring threads have neighbouring pairs of units.
DEVICE Place place_of_thread(const Arguments& a, int slices) {
    return {a, block_index() / slices, block_index() % slices, thread_index() / (UNITS / 2), thread_index() % (UNITS / 2)};
}

DEVICE bool is_real(const Arguments& a, int64_t row, int t) { return a.lengths == nullptr || t < a.lengths[row]; }
DEVICE bool is_reset(const Arguments& a, int64_t row, int t) {
    return a.resets != nullptr && a.resets[row * a.resets_row + t * a.resets_step];
}

DEVICE uint32_t load_word(const uint16_t* from) { return *reinterpret_cast<const uint32_t*>(from); }
DEVICE void store_word(uint16_t* to, uint32_t word) { *reinterpret_cast<uint32_t*>(to) = word; }
DEVICE Pair load_pair(const float* from) { return *reinterpret_cast<const Pair*>(from); }
DEVICE void store_pair(float* to, Pair pair) { *reinterpret_cast<Pair*>(to) = pair; }
DEVICE void add_pair(float* to, Pair pair) { store_pair(to, {to[0] + pair.x, to[1] + pair.y}); }
// A state (B, REAL_UNITS) in 32 bits or in 16, which may not be given: then it is zero. So are units that are none.
template <class Number>
DEVICE Pair state_pair(const float* states, const Place& place, int64_t row) {
    if (states == nullptr || !place.inside) return {0.0f, 0.0f};
    return load_pair(states + row * REAL_UNITS + place.unit());
}
template <class Number>
DEVICE Pair state_pair(const uint16_t* states, const Place& place, int64_t row) {
    if (states == nullptr || !place.inside) return {0.0f, 0.0f};
    return Number::unpack(load_word(states + row * REAL_UNITS + place.unit()));
}
template <class Number>
DEVICE void store_state(uint16_t* states, const Place& place, int64_t row, Pair state) {
    if (place.inside && states != nullptr) store_word(states + row * REAL_UNITS + place.unit(), Number::pack(state.x, state.y));
}
// The input's part of a gate.
DEVICE uint32_t input_word(const Arguments& a, const Place& place, int64_t row, int t, int gate) {
    if (!place.inside) return 0u;
    return load_word(a.gates_x + row * a.gates_x_row + t * a.gates_x_step + gate * REAL_UNITS + place.unit());
}
DEVICE void store_output(const Arguments& a, const Place& place, int64_t row, int t, uint32_t word) {
    if (place.inside) store_word(a.output + row * a.output_row + t * a.output_step + place.unit(), word);
}
DEVICE uint32_t d_output_word(const Arguments& a, const Place& place, int64_t row, int t) {
    if (a.d_output == nullptr || !place.inside) return 0u;
    return load_word(a.d_output + row * a.d_output_row + t * a.d_output_step + place.unit());
}
// The gradient of the input's part, (T, B, G * REAL_UNITS), where it is not the exchange itself.
template <bool ANOTHER>
DEVICE void store_d_input(const Arguments& a, const Place& place, int64_t row, int t, int gates, int gate, uint32_t word) {
    if (!(ANOTHER || REAL_UNITS < HIDDEN) || !place.inside) return;
    const int64_t at = ((static_cast<int64_t>(t) * place.batch + row) * gates + gate) * REAL_UNITS + place.unit();
    store_word(a.d_gates_x + at, word);
}

// The state that enters the step at t, if `h` and `c` left the one before: kept here, and h shown to the other blocks.
template <class Number>
DEVICE void enter(const Arguments& a, const Place& place, Pair* kept_h, Pair* kept_c, int chunk, int t, Pair h, Pair c) {
    const int64_t row = place.batch_row(chunk);
    if (is_reset(a, row, t)) {
        h = state_pair<Number>(a.h_reset, place, row);
        c = state_pair<Number>(a.c_reset, place, row);
    }
    store_exchanged(a.exchange + place.at(t, chunk, HIDDEN), Number::pack(h.x, h.y));
    kept_h[place.slot(chunk)] = h;
    kept_c[place.slot(chunk)] = c;
}

// The gradients of the state that entered the step at t go to the state that left the one before, or to the reset state.
DEVICE void leave(const Arguments& a, const Place& place, int64_t row, int t, Pair& dh, Pair& dc) {
    if (!is_reset(a, row, t)) return;
    const int64_t at = row * REAL_UNITS + place.unit();
    if (a.d_h_reset != nullptr && place.inside) add_pair(a.d_h_reset + at, dh);
    if (a.d_c_reset != nullptr && place.inside) add_pair(a.d_c_reset + at, dc);
    dh = {0.0f, 0.0f};
    dc = {0.0f, 0.0f};
}

// What a thread summed up, written to (S, COUNT, HIDDEN) unless nobody wants it.
template <int COUNT>
DEVICE void write_tally(const Place& place, const Tally& tally, int first, float* to) {
    if (to == nullptr || place.row >= place.chunk_rows) return;
    for (int i = 0; i < COUNT; i++)
        store_pair(to + (place.tally_slot * COUNT + i) * HIDDEN + place.unit(), tally.sums(first + i));
}
