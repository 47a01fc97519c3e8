// Weights of a recurrence on the chip, and the measures that all products have.
//
// The tensor cores' 16 x 8 x 16 product has weights on its left, kept by a warp in pieces of 16 rows and 32 columns: in
// registers, and what does not fit there in shared memory. On its right are eight rows of the batch.
//
// The order of columns within a piece does not matter as long as both operands agree. Lane (r, q) takes columns 8q to
// 8q + 7 of row r: 16 bytes, one load, two products.
#pragma once

#ifndef PIECES_HELD
#define PIECES_HELD 16
#define PIECES_HELD_OF_MORE 14
#else
#define PIECES_HELD_OF_MORE PIECES_HELD
#endif

constexpr int WARPS = 8;
constexpr int THREADS = 32 * WARPS;
constexpr int BLOCK = 32;               // columns of a piece
constexpr int TILE_ROWS = 8;            // rows of the batch in one product
constexpr int UNITS = BLOCK_UNITS;      // of a block of threads
constexpr int SIXTEENS = UNITS / 16;
constexpr int HIDDEN = WIDTH * BLOCK;   // units; those from REAL_UNITS on have no weights and stay zero
constexpr int MOST_HELD = PIECES_HELD;  // pieces of weights in a thread's registers, eight registers each
constexpr int HELD_OF_MORE = PIECES_HELD_OF_MORE;  // fewer if some are in shared memory: reading them takes registers
constexpr int MOST_HELD_OF_TWO = MOST_HELD + 2;    // of two products, of which one is multiplied at a time
constexpr int MOST_WAITS = 1 << 22;     // some seconds: blocks run together, so that more means an error
static_assert(REAL_UNITS <= HIDDEN && REAL_UNITS % 2 == 0);

// Buffers through which blocks exchange numbers are filled with this word first: a word that differs is there.
constexpr uint32_t NOT_YET = 0xffffffffu;

DEVICE bool is_missing(const Words& words) {
    return words.x == NOT_YET || words.y == NOT_YET || words.z == NOT_YET || words.w == NOT_YET;
}
DEVICE bool is_missing(const Pair& pair) { return bits_of(pair.x) == NOT_YET || bits_of(pair.y) == NOT_YET; }

// Eight rows of a matrix with REAL_UNITS columns, as far as there are so many, for two neighbouring columns, each pair a
// word: the other way round.
DEVICE void load_transposed(const uint16_t* from, int rows, Words& low, Words& high) {
    uint32_t both[8], first[4], second[4];
#pragma unroll
    for (int i = 0; i < 8; i++)
        both[i] = i < rows ? *reinterpret_cast<const uint32_t*>(from + static_cast<int64_t>(i) * REAL_UNITS) : 0u;
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

// The pieces of a warp, so many of them in registers; of each, a lane has two rows.
template <int PIECES, int IN_REGISTERS>
struct Weights {
    static constexpr int HELD = PIECES < IN_REGISTERS ? PIECES : IN_REGISTERS;
    static constexpr int bytes() { return (PIECES - HELD) * WARPS * 2 * 32 * 16; }  // in shared memory

    Words held[HELD][2];
    Words* spare;

    DEVICE void put(int piece, const Words& low, const Words& high) {
        if (piece < HELD) {
            held[piece < HELD ? piece : 0][0] = low;
            held[piece < HELD ? piece : 0][1] = high;
        } else {
            spare[index(piece, 0)] = low;
            spare[index(piece, 1)] = high;
        }
    }
    // `first` += the first sixteen columns of a piece times as many of b, `second` += the others. All pieces are asked for
    // one half, then for the other: a product that adds to the sums of the one just before has to wait for it. But what
    // is in shared memory is read once, for both.
    template <class Number, int HALF>
    DEVICE void multiply(float (&first)[4], float (&second)[4], int piece, const Words& b) const {
        if (piece < HELD) {
            const Words low = held[piece < HELD ? piece : 0][0], high = held[piece < HELD ? piece : 0][1];
            if (HALF == 0) Number::multiply(first, low.x, high.x, low.y, high.y, b.x, b.y);
            if (HALF == 1) Number::multiply(second, low.z, high.z, low.w, high.w, b.z, b.w);
        } else if (HALF == 1) {
            const Words low = spare[index(piece, 0)], high = spare[index(piece, 1)];
            Number::multiply(first, low.x, high.x, low.y, high.y, b.x, b.y);
            Number::multiply(second, low.z, high.z, low.w, high.w, b.z, b.w);
        }
    }

   private:
    static DEVICE int index(int piece, int half) {
        return (((piece - HELD) * WARPS + thread_index() / 32) * 2 + half) * 32 + thread_index() % 32;
    }
};
