// The product of weights that stay on the chip with rows that other blocks are still writing.
//
// A block owns UNITS units, each of them with SUMS rows of weights (one for each gate, say) by K columns: TILES matrices
// of 16 rows. K is cut into blocks of 32 columns, dealt out to the eight warps in turn; a warp keeps its columns' weights
// in registers, as the left operand of the tensor core's 16 x 8 x 16 product, and what does not fit there in shared
// memory. The right operand is eight rows of the batch. Each warp ends with its part of the sums, which go through
// shared memory to the threads that own the units.
//
// The order of columns within a block does not matter as long as both operands agree. Lane (r, q) takes columns 8q to
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
constexpr int UNITS = BLOCK_UNITS;
constexpr int SIXTEENS = UNITS / 16;
constexpr int BLOCK = 32;        // columns
constexpr int PADDED = WIDTH * BLOCK;  // units, with those that have no weights
constexpr int TILE_ROWS = 8;     // rows of the batch in one product
constexpr int MOST_HELD = PIECES_HELD;  // pieces of weights in a thread's registers, eight registers each
constexpr int HELD_OF_MORE = PIECES_HELD_OF_MORE;  // fewer if some are in shared memory: reading them takes registers
constexpr int MOST_WAITS = 1 << 22;  // some seconds: blocks run together, so that more means an error

// Buffers through which blocks exchange numbers are filled with this word before a launch: a word that differs is there.
constexpr uint32_t NOT_YET = 0xffffffffu;

DEVICE bool is_missing(const Words& words) {
    return words.x == NOT_YET || words.y == NOT_YET || words.z == NOT_YET || words.w == NOT_YET;
}

// Eight rows of a matrix, as far as there are so many, for two neighbouring columns of `units`, each pair a word: the
// other way round.
DEVICE void load_transposed(const uint16_t* from, int units, int rows, Words& low, Words& high) {
    uint32_t both[8], first[4], second[4];
#pragma unroll
    for (int i = 0; i < 8; i++)
        both[i] = i < rows ? *reinterpret_cast<const uint32_t*>(from + i * static_cast<int64_t>(units)) : 0u;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        first[i] = (both[2 * i] & 0xffffu) | both[2 * i + 1] << 16;
        second[i] = both[2 * i] >> 16 | (both[2 * i + 1] & 0xffff0000u);
    }
    low = {first[0], first[1], first[2], first[3]};
    high = {second[0], second[1], second[2], second[3]};
}

// Eight numbers of a row that has `count` of them, from `column` on; those past its end are zero.
DEVICE Words load_eight(const uint16_t* row, int column, int count) {
    if (count % 8 == 0) return column < count ? *reinterpret_cast<const Words*>(row + column) : Words{0, 0, 0, 0};
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        words[i] = column + 2 * i < count ? *reinterpret_cast<const uint32_t*>(row + column + 2 * i) : 0u;
    return {words[0], words[1], words[2], words[3]};
}

// The sums of one unit, side by side in shared memory so that one access takes them all.
template <int SUMS>
struct Sums;
template <>
struct Sums<1> {
    float of[1];
};
template <>
struct alignas(8) Sums<2> {
    float of[2];
};
template <>
struct alignas(16) Sums<3> {
    float of[4];  // the last is not used
};
template <>
struct alignas(16) Sums<4> {
    float of[4];
};

// TRANSPOSED: the matrix has a row for each column of the product. Two neighbouring units make one word of it, so that
// a lane has rows 2r and 2r + 1 of a tile then, and not r and r + 8.
template <class Number, int SUMS, int BLOCKS, bool TRANSPOSED = false>
struct Product {
    static_assert(SUMS == 1 || !TRANSPOSED);
    using UnitSums = Sums<SUMS>;
    static constexpr int TILES = SUMS * SIXTEENS;                     // tile t: sum t % SUMS of sixteen units
    static constexpr int SHARE = (BLOCKS + WARPS - 1) / WARPS;        // blocks of a warp; the last may be one too many
    static constexpr int PIECES = TILES * SHARE;                      // 16 x 32 weights each
    static constexpr int HELD = PIECES <= MOST_HELD ? PIECES : HELD_OF_MORE;
    static constexpr int SPARE = PIECES - HELD;                       // in shared memory
    static constexpr int SUMMING = BLOCKS < WARPS ? BLOCKS : WARPS;   // warps that have a block at all
    static constexpr int WIDE = sizeof(UnitSums) / 4;                     // floats
    static constexpr int PITCH = UNITS * WIDE + 4;                    // floats of a row's sums; no two lanes in one bank
    static constexpr int AT_ONCE = SHARE < 4 ? SHARE : 4;             // blocks on their way while others are multiplied
    static constexpr int ROUNDS = (SHARE + AT_ONCE - 1) / AT_ONCE;
    static constexpr int CHAINS = TILES == 1 ? 4 : TILES < 4 ? 2 : 1;  // independent sums, to hide a product's latency

    static constexpr int spare_words() { return SPARE * WARPS * 2 * 32; }
    static constexpr int partial_floats(int rows) { return 2 * SUMMING * rows * PITCH; }

    Words held[HELD][2];  // a piece: a lane's two rows
    const Words* spare;

    static DEVICE bool mine(int warp, int share) { return share < BLOCKS / WARPS || share * WARPS + warp < BLOCKS; }

    // matrix (SUMS * units, units), row `sum * units + unit`; TRANSPOSED, the columns here are its rows, gate by gate
    DEVICE void load(const uint16_t* matrix, int units, int first_unit, Words* shared) {
        const int warp = thread_index() / 32, lane = thread_index() % 32, r = lane / 4, q = lane % 4;
        spare = shared;
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) {
            const int share = piece / TILES, tile = piece % TILES;
            Words low = {0, 0, 0, 0}, high = {0, 0, 0, 0};
            if (mine(warp, share)) {
                const int unit = first_unit + tile / SUMS * 16, column = (share * WARPS + warp) * BLOCK + 8 * q;
                if (TRANSPOSED) {
                    const int gate = column / PADDED, first = column % PADDED;
                    const int64_t from = (static_cast<int64_t>(gate) * units + first) * units + unit + 2 * r;
                    if (unit + 2 * r < units) load_transposed(matrix + from, units, units - first, low, high);
                } else {
                    const uint16_t* row = matrix + (static_cast<int64_t>(tile % SUMS) * units + unit + r) * units;
                    if (unit + r < units) low = load_eight(row, column, units);
                    if (unit + r + 8 < units) high = load_eight(row + 8 * units, column, units);
                }
            }
            if (piece < HELD) {
                held[piece < HELD ? piece : 0][0] = low;
                held[piece < HELD ? piece : 0][1] = high;
            } else {
                shared[spare_index(piece, warp, 0, lane)] = low;
                shared[spare_index(piece, warp, 1, lane)] = high;
            }
        }
    }

    // Multiplies `rows` rows of `source` as they arrive; partial (SUMMING, chunk_rows, PITCH) gets each warp's sums.
    DEVICE void gather(const uint16_t* source, int rows, float* partial, int chunk_rows) const {
        const int warp = thread_index() / 32, lane = thread_index() % 32, r = lane / 4, q = lane % 4;
        if (warp >= SUMMING) return;
        const int tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
        const uint16_t* here = address(source, r, rows, warp, q);
        Words next[AT_ONCE];
        load_round(next, here, 0, warp);
        for (int tile = 0; tile < tiles; tile++) {
            const uint16_t* below = address(source, (tile + 1) * TILE_ROWS + r, rows, warp, q);  // of the next tile
            float sums[CHAINS][TILES][4] = {};
#pragma unroll
            for (int round = 0; round < ROUNDS; round++) {
                const bool last = round + 1 == ROUNDS, more = !last || tile + 1 < tiles;
                const uint16_t* ahead = last ? below : here;
                const int ahead_round = last ? 0 : round + 1;
                Words now[AT_ONCE];
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++) now[i] = next[i];
                if (more) load_round(next, ahead, ahead_round, warp);
                for (int waits = 0; any_lane(is_any_missing(now)); waits++) {
                    if (waits > MOST_WAITS) give_up();
                    load_missing(now, here, round);
                    if (more) load_missing(next, ahead, ahead_round);  // as late, and not to be waited for again
                }
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++) {
                    const int share = round * AT_ONCE + i;
                    if (share < SHARE && mine(warp, share)) multiply(sums, share, now[i], warp, lane);
                }
            }
            here = below;
            store(sums, partial + (warp * chunk_rows + tile * TILE_ROWS + 2 * q) * PITCH, r);
        }
    }

    // The same for eight rows in shared memory, (8, pitch), that other blocks of the cluster are still writing. A word that
    // was read is all ones again.
    DEVICE void gather_near(uint16_t* source, int pitch, float* partial) const {
        static_assert(SHARE == 1 && SPARE == 0);
        const int warp = thread_index() / 32, lane = thread_index() % 32, r = lane / 4, q = lane % 4;
        if (warp >= SUMMING) return;
        uint16_t* here = source + r * pitch + warp * BLOCK + 8 * q;
        Words words = load_near(here);
        for (int waits = 0; any_lane(is_missing(words)); waits++) {
            if (waits > MOST_WAITS) give_up();
            words = load_near(here);
        }
        *reinterpret_cast<Words*>(here) = {NOT_YET, NOT_YET, NOT_YET, NOT_YET};
        float sums[CHAINS][TILES][4] = {};
        multiply(sums, 0, words, warp, lane);
        store(sums, partial + (warp * TILE_ROWS + 2 * q) * PITCH, r);
    }

    // The sums of one row of the batch for units 2 * pair and 2 * pair + 1.
    static DEVICE void sum(const float* partial, int chunk_rows, int row, int pair, Pair (&sums)[SUMS]) {
        const int swapped = WIDE == 4 ? pair / 4 % 2 : 0;  // half of the threads take the second unit first: other banks
        const float* at = partial + row * PITCH + 2 * pair * WIDE;
        float total[2][SUMS] = {};
#pragma unroll
        for (int warp = 0; warp < SUMMING; warp++)
#pragma unroll
            for (int which = 0; which < 2; which++) {
                const float* from = at + warp * chunk_rows * PITCH + (which ^ swapped) * WIDE;
                const UnitSums unit = *reinterpret_cast<const UnitSums*>(from);
#pragma unroll
                for (int sum = 0; sum < SUMS; sum++) total[which][sum] += unit.of[sum];
            }
#pragma unroll
        for (int sum = 0; sum < SUMS; sum++)
            sums[sum] = swapped ? Pair{total[1][sum], total[0][sum]} : Pair{total[0][sum], total[1][sum]};
    }

   private:
    // Sums e of a tile are those of a lane's first or second unit (e / 2) for rows 2q and 2q + 1 (e % 2) of the batch.
    static DEVICE void store(const float (&sums)[CHAINS][TILES][4], float* row, int r) {
#pragma unroll
        for (int sixteen = 0; sixteen < SIXTEENS; sixteen++)
#pragma unroll
            for (int column = 0; column < 2; column++) {
                UnitSums first = {}, second = {};
#pragma unroll
                for (int sum = 0; sum < SUMS; sum++)
#pragma unroll
                    for (int chain = 0; chain < CHAINS; chain++) {
                        first.of[sum] += sums[chain][sixteen * SUMS + sum][column];
                        second.of[sum] += sums[chain][sixteen * SUMS + sum][2 + column];
                    }
                float* at = row + column * PITCH + sixteen * 16 * WIDE;
                if (TRANSPOSED) {
                    *reinterpret_cast<Pair*>(at + 2 * r) = {first.of[0], second.of[0]};
                } else {
                    *reinterpret_cast<UnitSums*>(at + r * WIDE) = first;
                    *reinterpret_cast<UnitSums*>(at + (r + 8) * WIDE) = second;
                }
            }
    }

    static DEVICE int spare_index(int piece, int warp, int half, int lane) {
        return (((piece - HELD) * WARPS + warp) * 2 + half) * 32 + lane;
    }

    // Rows past the last read the last: their sums are never looked at, and what is read must be there some time.
    static DEVICE const uint16_t* address(const uint16_t* source, int row, int rows, int warp, int q) {
        const int64_t last = row < rows ? row : rows - 1;
        return source + last * (BLOCKS * BLOCK) + warp * BLOCK + 8 * q;
    }

    static DEVICE void load_round(Words (&words)[AT_ONCE], const uint16_t* from, int round, int warp) {
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int share = round * AT_ONCE + i;
            words[i] = {0, 0, 0, 0};
            if (share < SHARE && mine(warp, share)) words[i] = load_exchanged(from + share * WARPS * BLOCK);
        }
    }
    static DEVICE void load_missing(Words (&words)[AT_ONCE], const uint16_t* from, int round) {
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (is_missing(words[i])) words[i] = load_exchanged(from + (round * AT_ONCE + i) * WARPS * BLOCK);
    }
    static DEVICE bool is_any_missing(const Words (&words)[AT_ONCE]) {
        bool missing = false;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) missing = missing || is_missing(words[i]);
        return missing;
    }

    DEVICE void multiply(float (&sums)[CHAINS][TILES][4], int share, const Words& b, int warp, int lane) const {
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            const int piece = share * TILES + t;
            Words low, high;
            if (piece < HELD) {
                low = held[piece < HELD ? piece : 0][0];
                high = held[piece < HELD ? piece : 0][1];
            } else {
                low = spare[spare_index(piece, warp, 0, lane)];
                high = spare[spare_index(piece, warp, 1, lane)];
            }
            Number::multiply(sums[(2 * share) % CHAINS][t], low.x, high.x, low.y, high.y, b.x, b.y);
            Number::multiply(sums[(2 * share + 1) % CHAINS][t], low.z, high.z, low.w, high.w, b.z, b.w);
        }
    }
};
