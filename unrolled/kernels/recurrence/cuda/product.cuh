// The recurrent product: weights that stay on the chip, times rows that other blocks are still writing.
//
// A block owns UNITS units, each of them with SUMS rows of weights (one for each gate, say) by K columns: TILES matrices
// of 16 rows. K is cut into blocks of 32 columns, of which each of the eight warps has some: neighbours, since half a line
// of the cache comes as fast as its other half; of what is near, in turn. Each warp ends with its part of the sums, which
// go through shared memory to the threads that own the units.
#pragma once

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
// a lane has rows 2r and 2r + 1 of a tile then, and not r and r + 8. NEAR: the rows come by shared memory. IN_REGISTERS:
// pieces of weights, where a second product wants registers too (gru_before.cu).
template <class Number, int SUMS, int BLOCKS, bool TRANSPOSED = false, bool NEAR = false, int IN_REGISTERS = 0>
struct Product {
    static_assert(SUMS == 1 || !TRANSPOSED);
    using UnitSums = Sums<SUMS>;
    static constexpr int TILES = SUMS * SIXTEENS;                     // tile t: sum t % SUMS of sixteen units
    static constexpr int SHARE = (BLOCKS + WARPS - 1) / WARPS;        // blocks of a warp; the last may be one too many
    static constexpr int PIECES = TILES * SHARE;
    static constexpr int SUMMING = BLOCKS < WARPS ? BLOCKS : WARPS;   // warps that have a block at all
    static constexpr int WIDE = sizeof(UnitSums) / 4;                     // floats
    static constexpr int PITCH = UNITS * WIDE + 4;                    // floats of a row's sums; no two lanes in one bank
    // blocks asked for together: more where other rows follow; as many as there are registers for
    static constexpr int AT_ONCE = SHARE <= 6 ? SHARE : !MANY_ROWS ? 4 : SHARE == 16 ? 8 : 6;
    static constexpr int ROUNDS = (SHARE + AT_ONCE - 1) / AT_ONCE;
    static constexpr int CHAINS = TILES == 1 ? 4 : TILES < 4 ? 2 : 1;  // independent sums, to hide a product's latency

    // of one set of partial sums; there are two, taking turns
    static constexpr int partial_floats(int rows) { return SUMMING * rows * PITCH; }
    static constexpr int HELD = IN_REGISTERS ? IN_REGISTERS : PIECES <= MOST_HELD ? PIECES : HELD_OF_MORE;
    using Kept = Weights<PIECES, HELD>;
    static constexpr int bytes(int chunk_rows) { return Kept::bytes() + 2 * partial_floats(chunk_rows) * 4; }

    Kept weights;
    float* partials;

    static constexpr int APART = NEAR ? WARPS : 1;  // from a warp's block to its next
    static DEVICE int first_block(int warp) { return NEAR ? warp : warp * SHARE; }
    static DEVICE bool mine(int warp, int share) {
        return BLOCKS % WARPS == 0 || first_block(warp) + share * APART < BLOCKS;
    }

    // matrix (SUMS * units, units), row `sum * units + unit`; TRANSPOSED, the columns here are its rows, gate by gate
    DEVICE Product(const uint16_t* matrix, const Place& place, uint8_t* shared) {
        const int warp = thread_index() / 32, lane = thread_index() % 32, r = lane / 4, q = lane % 4;
        weights.spare = reinterpret_cast<Words*>(shared);
        partials = reinterpret_cast<float*>(shared + weights.bytes());
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) {
            const int share = piece / TILES, tile = piece % TILES;
            Words low = {0, 0, 0, 0}, high = {0, 0, 0, 0};
            if (mine(warp, share)) {
                const int unit = place.first_unit + tile / SUMS * 16, column = (first_block(warp) + share * APART) * BLOCK + 8 * q;
                if (TRANSPOSED) {
                    const int gate = column / HIDDEN, first = column % HIDDEN;
                    const int64_t from = (static_cast<int64_t>(gate) * REAL_UNITS + first) * REAL_UNITS + unit + 2 * r;
                    if (unit + 2 * r < REAL_UNITS) load_transposed(matrix + from, REAL_UNITS - first, low, high);
                } else {
                    const uint16_t* row = matrix + (static_cast<int64_t>(tile % SUMS) * REAL_UNITS + unit + r) * REAL_UNITS;
                    if (unit + r < REAL_UNITS) low = load_eight<REAL_UNITS>(row, column);
                    if (unit + r + 8 < REAL_UNITS) high = load_eight<REAL_UNITS>(row + 8 * REAL_UNITS, column);
                }
            }
            weights.put(piece, low, high);
        }
    }

    // Multiplies the rows of a chunk, (·, BLOCKS * BLOCK), as they arrive. Afterwards every owner can ask for sums.
    DEVICE void gather(const uint16_t* source, const Place& place, int step, int chunk) const {
        const int rows = place.rows_of(chunk), warp = thread_index() / 32;
        if (warp < SUMMING) gather_rows(source, rows, warp, partial(turn(place, step, chunk), place.chunk_rows), place.chunk_rows);
        sync_block();
    }

    // The sums of this thread's row and units.
    DEVICE void sum(const Place& place, int step, int chunk, Pair (&sums)[SUMS]) const {
        sum_up(place, partial(turn(place, step, chunk), place.chunk_rows), place.chunk_rows, sums);
    }

    // The same where eight rows in shared memory, (8, pitch), are all, and other blocks of the cluster are still writing
    // them. A word that was read is all ones again. `words`: what was read.
    DEVICE void gather_near(uint16_t* source, int pitch, int step, Words (&words)[SHARE]) const {
        static_assert(PIECES <= MOST_HELD);
        if (thread_index() / 32 < SUMMING) read_words(source, pitch, words);
        multiply_near(words, step);
        sync_block();
    }
    DEVICE void gather_near(uint16_t* source, int pitch, int step) const {
        Words words[SHARE];
        gather_near(source, pitch, step, words);
    }
    // Multiplies what another product has gathered. Owners can ask for sums after the block has met.
    DEVICE void multiply_near(const Words (&words)[SHARE], int step) const {
        if (thread_index() / 32 < SUMMING) multiply_words(words, partial(step & 1, TILE_ROWS));
    }
    DEVICE void sum_near(const Place& place, int step, Pair (&sums)[SUMS]) const {
        sum_up(place, partial(step & 1, TILE_ROWS), TILE_ROWS, sums);
    }

   private:
    static DEVICE int turn(const Place& place, int step, int chunk) { return (step * place.chunks + chunk) & 1; }
    DEVICE float* partial(int turn, int rows) const { return partials + turn * partial_floats(rows); }

    static DEVICE void sum_up(const Place& place, const float* partial, int rows, Pair (&sums)[SUMS]) {
        const int swapped = WIDE == 4 ? place.pair / 4 % 2 : 0;  // half of the threads take the second unit first: other banks
        const float* at = partial + place.row * PITCH + 2 * place.pair * WIDE;
        float total[2][SUMS] = {};
#pragma unroll
        for (int warp = 0; warp < SUMMING; warp++) {
            const float* from = at + warp * rows * PITCH;
            if constexpr (SUMS == 1) {
                const Pair both = load_pair(from);
                total[0][0] += both.x;
                total[1][0] += both.y;
            } else {
#pragma unroll
                for (int which = 0; which < 2; which++) {
                    const UnitSums unit = *reinterpret_cast<const UnitSums*>(from + (which ^ swapped) * WIDE);
#pragma unroll
                    for (int sum = 0; sum < SUMS; sum++) total[which][sum] += unit.of[sum];
                }
            }
        }
#pragma unroll
        for (int sum = 0; sum < SUMS; sum++)
            sums[sum] = swapped ? Pair{total[1][sum], total[0][sum]} : Pair{total[0][sum], total[1][sum]};
    }

    DEVICE void read_words(uint16_t* source, int pitch, Words (&words)[SHARE]) const {
        const int warp = thread_index() / 32, lane = thread_index() % 32, r = lane / 4, q = lane % 4;
        uint16_t* here = source + r * pitch + first_block(warp) * BLOCK + 8 * q;
        bool missing = true;
        for (int waits = 0; any_lane(missing); waits++) {
            if (waits > MOST_WAITS) give_up();
            missing = false;
#pragma unroll
            for (int share = 0; share < SHARE; share++) {
                words[share] = {0, 0, 0, 0};
                if (mine(warp, share)) words[share] = load_near(here + share * APART * BLOCK);
                missing = missing || is_missing(words[share]);
            }
        }
#pragma unroll
        for (int share = 0; share < SHARE; share++)
            if (mine(warp, share))
                *reinterpret_cast<Words*>(here + share * APART * BLOCK) = {NOT_YET, NOT_YET, NOT_YET, NOT_YET};
    }

    DEVICE void multiply_words(const Words (&words)[SHARE], float* partial) const {
        const int warp = thread_index() / 32, lane = thread_index() % 32, r = lane / 4, q = lane % 4;
        float sums[CHAINS][TILES][4] = {};
#pragma unroll
        for (int share = 0; share < SHARE; share++)
            if (mine(warp, share)) multiply(sums, share, words[share]);
        store(sums, partial + (warp * TILE_ROWS + 2 * q) * PITCH, r);
    }

    // partial (SUMMING, chunk_rows, PITCH) gets each warp's sums
    DEVICE void gather_rows(const uint16_t* source, int rows, int warp, float* partial, int chunk_rows) const {
        const int lane = thread_index() % 32, r = lane / 4, q = lane % 4;
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
                // What comes next is asked for at once, but not where there are more rows: what is asked for in vain is in the
                // way of what is written.
                if (more && tiles == 1) load_round(next, ahead, ahead_round, warp);
                for (int waits = 0; any_lane(is_any_missing(now)); waits++) {
                    if (waits > MOST_WAITS) give_up();
                    rest();
                    load_missing(now, here, round);
                }
                if (more && tiles > 1) load_round(next, ahead, ahead_round, warp);
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++) {
                    const int share = round * AT_ONCE + i;
                    if (share < SHARE && mine(warp, share)) multiply(sums, share, now[i]);
                }
            }
            here = below;
            store(sums, partial + (warp * chunk_rows + tile * TILE_ROWS + 2 * q) * PITCH, r);
        }
    }

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

    // Rows past the last read the last: their sums are never looked at, and what is read must be there some time.
    static DEVICE const uint16_t* address(const uint16_t* source, int row, int rows, int warp, int q) {
        const int64_t last = row < rows ? row : rows - 1;
        return source + last * (BLOCKS * BLOCK) + first_block(warp) * BLOCK + 8 * q;
    }

    static DEVICE void load_round(Words (&words)[AT_ONCE], const uint16_t* from, int round, int warp) {
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int share = round * AT_ONCE + i;
            words[i] = {0, 0, 0, 0};
            if (share < SHARE && mine(warp, share)) words[i] = load_exchanged(from + share * APART * BLOCK);
        }
    }
    static DEVICE void load_missing(Words (&words)[AT_ONCE], const uint16_t* from, int round) {
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (is_missing(words[i])) words[i] = load_exchanged(from + (round * AT_ONCE + i) * APART * BLOCK);
    }
    static DEVICE bool is_any_missing(const Words (&words)[AT_ONCE]) {
        bool missing = false;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) missing = missing || is_missing(words[i]);
        return missing;
    }

    DEVICE void multiply(float (&sums)[CHAINS][TILES][4], int share, const Words& b) const {
        multiply_half<0>(sums, share, b);
        multiply_half<1>(sums, share, b);
    }
    template <int HALF>
    DEVICE void multiply_half(float (&sums)[CHAINS][TILES][4], int share, const Words& b) const {
#pragma unroll
        for (int t = 0; t < TILES; t++)
            weights.template multiply<Number, HALF>(sums[(2 * share) % CHAINS][t], sums[(2 * share + 1) % CHAINS][t],
                                                    share * TILES + t, b);
    }
};
