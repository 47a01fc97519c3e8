// Recurrent weights on the chip.
//
// The 16 x 8 x 16 product of the tensor cores has weights on its left: a warp keeps them in fragments of FRAGMENT_ROWS by
// TILE_COLUMNS, in registers and, where those are full, in shared memory. On its right are TILE_ROWS rows of the batch.
//
// The order of columns within a fragment does not matter as long as both operands agree. Lane (r, q) takes columns 8q to
// 8q + 7 of row r: 16 bytes, one load, two products.
#pragma once

constexpr int UNIT_TILES = BLOCK_UNITS / FRAGMENT_ROWS;
constexpr int WIDTH_TILES = PADDED_SIZE / TILE_COLUMNS;  // units from HIDDEN_SIZE on are padding: zero weights, zero states
constexpr int MAX_POLLS = 1 << 22;  // some seconds: all blocks run at once, so more polls mean an error
static_assert(HIDDEN_SIZE <= PADDED_SIZE && HIDDEN_SIZE % 2 == 0);

// Exchange buffers are filled with this word first: a word that differs has been written.
constexpr uint32_t EMPTY = static_cast<uint32_t>(EMPTY_WORD);

DEVICE bool is_empty(const Words& words) {
    return words.x == EMPTY || words.y == EMPTY || words.z == EMPTY || words.w == EMPTY;
}
DEVICE bool is_empty(const Pair& pair) { return bits_of(pair.x) == EMPTY || bits_of(pair.y) == EMPTY; }

// Two neighbouring columns of up to eight rows of a matrix with HIDDEN_SIZE columns, transposed. Rows past `rows` are zero.
DEVICE void load_transposed(const uint16_t* from, int rows, Words& low, Words& high) {
    uint32_t both[8], first[4], second[4];
#pragma unroll
    for (int i = 0; i < 8; i++)
        both[i] = i < rows ? *reinterpret_cast<const uint32_t*>(from + static_cast<int64_t>(i) * HIDDEN_SIZE) : 0u;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        first[i] = (both[2 * i] & 0xffffu) | both[2 * i + 1] << 16;
        second[i] = both[2 * i] >> 16 | (both[2 * i + 1] & 0xffff0000u);
    }
    low = {first[0], first[1], first[2], first[3]};
    high = {second[0], second[1], second[2], second[3]};
}

// Eight numbers of a row of COUNT from `column` on; those past its end are zero.
template <int COUNT>
DEVICE Words load_eight(const uint16_t* row, int column) {
    if constexpr (COUNT % 8 == 0) {
        return column < COUNT ? *reinterpret_cast<const Words*>(row + column) : Words{0, 0, 0, 0};
    } else {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            words[i] = column + 2 * i < COUNT ? *reinterpret_cast<const uint32_t*>(row + column + 2 * i) : 0u;
        return {words[0], words[1], words[2], words[3]};
    }
}

// The fragments of a warp; a lane has two rows of each.
template <int FRAGMENTS, int REGISTER_FRAGMENTS>
struct Weights {
    static constexpr int HELD = FRAGMENTS < REGISTER_FRAGMENTS ? FRAGMENTS : REGISTER_FRAGMENTS;
    static constexpr int bytes() { return (FRAGMENTS - HELD) * WARPS * FRAGMENT_BYTES; }  // in shared memory

    Words held[HELD][2];
    Words* spilled;

    DEVICE void put(int fragment, const Words& low, const Words& high) {
        if (fragment < HELD) {
            held[fragment < HELD ? fragment : 0][0] = low;
            held[fragment < HELD ? fragment : 0][1] = high;
        } else {
            spilled[index(fragment, 0)] = low;
            spilled[index(fragment, 1)] = high;
        }
    }
    // `first` += the first sixteen columns of a fragment times b, `second` += the others. The caller goes through all
    // fragments for one half and then for the other: a product that adds to the sums of the product just before it waits
    // for it. A fragment in shared memory is read once, for both halves.
    template <int HALF>
    DEVICE void multiply(float (&first)[4], float (&second)[4], int fragment, const Words& b) const {
        if (fragment < HELD) {
            const Words low = held[fragment < HELD ? fragment : 0][0], high = held[fragment < HELD ? fragment : 0][1];
            if (HALF == 0) Number::multiply(first, low.x, high.x, low.y, high.y, b.x, b.y);
            if (HALF == 1) Number::multiply(second, low.z, high.z, low.w, high.w, b.z, b.w);
        } else if (HALF == 1) {
            const Words low = spilled[index(fragment, 0)], high = spilled[index(fragment, 1)];
            Number::multiply(first, low.x, high.x, low.y, high.y, b.x, b.y);
            Number::multiply(second, low.z, high.z, low.w, high.w, b.z, b.w);
        }
    }

   private:
    static DEVICE int index(int fragment, int half) {
        return (((fragment - HELD) * WARPS + thread_index() / LANES) * 2 + half) * LANES + thread_index() % LANES;
    }
};
