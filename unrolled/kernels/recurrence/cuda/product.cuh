// The recurrent product: weights that stay on the chip, times rows that other blocks are still writing.
//
// A block owns BLOCK_UNITS units, each with SUMS rows of weights (one for each gate, for example): TILES matrices of
// FRAGMENT_ROWS rows. Their columns are split into COLUMN_TILES tiles, and those among the warps. Tiles of a warp are
// neighbours, since both halves of a cache line arrive together; in a cluster they are WARPS apart. Each warp ends with
// partial sums, which go through shared memory to the threads that own the units.
#pragma once

// The sums of one unit, contiguous in shared memory, so that one access reads them all.
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

// TRANSPOSED: the matrix has a row for each column of the product. Two neighbouring units are one word of it, so a lane
// has rows 2r and 2r + 1 of a tile instead of r and r + 8. IN_CLUSTER: the rows come through shared memory.
// REGISTER_FRAGMENTS: set where a second product needs registers too (gru_before.cu).
template <int SUMS, int COLUMN_TILES, bool TRANSPOSED = false, bool IN_CLUSTER = false, int REGISTER_FRAGMENTS = 0>
struct Product {
    static_assert(SUMS == 1 || !TRANSPOSED);
    using UnitSums = Sums<SUMS>;
    static constexpr int TILES = SUMS * UNIT_TILES;  // tile t: sum t % SUMS of 16 units
    static constexpr int SHARE = (COLUMN_TILES + WARPS - 1) / WARPS;  // column tiles of a warp; the last may not exist
    static constexpr int FRAGMENTS = TILES * SHARE;
    static constexpr int SUMMING_WARPS = COLUMN_TILES < WARPS ? COLUMN_TILES : WARPS;  // warps with any tile
    static constexpr int SUM_FLOATS = sizeof(UnitSums) / 4;
    static constexpr int PITCH = BLOCK_UNITS * SUM_FLOATS + SUMS_PADDING;  // floats of a row's sums
    // tiles loaded together, as many as there are registers for; more where other rows follow
    static constexpr int PREFETCH = SHARE <= 6 ? SHARE : !MANY_ROWS ? 4 : SHARE == 16 ? 8 : 6;
    static constexpr int ROUNDS = (SHARE + PREFETCH - 1) / PREFETCH;
    static constexpr int CHAINS = TILES == 1 ? 4 : TILES < 4 ? 2 : 1;  // independent sums, to hide a product's latency

    // One of two sets of partial sums, which take turns.
    static constexpr int partial_floats(int rows) { return SUMMING_WARPS * rows * PITCH; }
    static constexpr int IN_REGISTERS = REGISTER_FRAGMENTS                    ? REGISTER_FRAGMENTS
                                        : FRAGMENTS <= MAX_REGISTER_FRAGMENTS ? FRAGMENTS
                                                                              : REGISTER_FRAGMENTS_WITH_SPILL;
    using Kept = Weights<FRAGMENTS, IN_REGISTERS>;
    static constexpr int bytes(int chunk_rows) { return Kept::bytes() + 2 * partial_floats(chunk_rows) * 4; }

    Kept weights;
    float* partials;

    static constexpr int TILE_STRIDE = IN_CLUSTER ? WARPS : 1;  // from a warp's tile to its next
    static DEVICE int first_tile(int warp) { return IN_CLUSTER ? warp : warp * SHARE; }
    static DEVICE bool has_tile(int warp, int share) {
        return COLUMN_TILES % WARPS == 0 || first_tile(warp) + share * TILE_STRIDE < COLUMN_TILES;
    }

    // matrix (SUMS * units, units), row `sum * units + unit`; TRANSPOSED, its rows are the columns here, gate by gate
    DEVICE Product(const uint16_t* matrix, const ThreadMap& map, uint8_t* shared) {
        const int warp = thread_index() / LANES, lane = thread_index() % LANES, r = lane / 4, q = lane % 4;
        weights.spilled = reinterpret_cast<Words*>(shared);
        partials = reinterpret_cast<float*>(shared + weights.bytes());
#pragma unroll
        for (int fragment = 0; fragment < FRAGMENTS; fragment++) {
            const int share = fragment / TILES, tile = fragment % TILES;
            Words low = {0, 0, 0, 0}, high = {0, 0, 0, 0};
            if (has_tile(warp, share)) {
                const int unit = map.first_unit + tile / SUMS * 16;
                const int column = (first_tile(warp) + share * TILE_STRIDE) * TILE_COLUMNS + 8 * q;
                if (TRANSPOSED) {
                    const int gate = column / PADDED_SIZE, first = column % PADDED_SIZE;
                    const int64_t from = (static_cast<int64_t>(gate) * HIDDEN_SIZE + first) * HIDDEN_SIZE + unit + 2 * r;
                    if (unit + 2 * r < HIDDEN_SIZE) load_transposed(matrix + from, HIDDEN_SIZE - first, low, high);
                } else {
                    const uint16_t* row = matrix + (static_cast<int64_t>(tile % SUMS) * HIDDEN_SIZE + unit + r) * HIDDEN_SIZE;
                    if (unit + r < HIDDEN_SIZE) low = load_eight<HIDDEN_SIZE>(row, column);
                    if (unit + r + 8 < HIDDEN_SIZE) high = load_eight<HIDDEN_SIZE>(row + 8 * HIDDEN_SIZE, column);
                }
            }
            weights.put(fragment, low, high);
        }
    }

    // Polls and multiplies the rows of a chunk, (·, COLUMN_TILES * TILE_COLUMNS). Then every owner can call `sum`.
    DEVICE void gather(const uint16_t* source, const ThreadMap& map, int step, int chunk) const {
        const int rows = map.rows_of(chunk), warp = thread_index() / LANES;
        if (warp < SUMMING_WARPS)
            gather_rows(source, rows, warp, partial(turn(map, step, chunk), map.chunk_rows), map.chunk_rows);
        sync_block();
    }

    // The sums of this thread's row and units.
    DEVICE void sum(const ThreadMap& map, int step, int chunk, Pair (&sums)[SUMS]) const {
        sum_up(map, partial(turn(map, step, chunk), map.chunk_rows), map.chunk_rows, sums);
    }

    // The same for the TILE_ROWS rows of a cluster in shared memory, (8, pitch), which other blocks are still writing. Words
    // that were read become EMPTY again. `words` returns them.
    DEVICE void gather_cluster(uint16_t* source, int pitch, int step, Words (&words)[SHARE]) const {
        static_assert(FRAGMENTS <= MAX_REGISTER_FRAGMENTS);
        if (thread_index() / LANES < SUMMING_WARPS) poll_words(source, pitch, words);
        multiply_gathered(words, step);
        sync_block();
    }
    DEVICE void gather_cluster(uint16_t* source, int pitch, int step) const {
        Words words[SHARE];
        gather_cluster(source, pitch, step, words);
    }
    // Multiplies words that another product gathered. Owners can call `sum_cluster` after the next sync_block.
    DEVICE void multiply_gathered(const Words (&words)[SHARE], int step) const {
        if (thread_index() / LANES < SUMMING_WARPS) multiply_words(words, partial(step & 1, TILE_ROWS));
    }
    DEVICE void sum_cluster(const ThreadMap& map, int step, Pair (&sums)[SUMS]) const {
        sum_up(map, partial(step & 1, TILE_ROWS), TILE_ROWS, sums);
    }

   private:
    static DEVICE int turn(const ThreadMap& map, int step, int chunk) { return (step * map.chunks + chunk) & 1; }
    DEVICE float* partial(int turn, int rows) const { return partials + turn * partial_floats(rows); }

    static DEVICE void sum_up(const ThreadMap& map, const float* partial, int rows, Pair (&sums)[SUMS]) {
        // half of the threads start with the second unit, in other banks
        const int swapped = SUM_FLOATS == 4 ? map.pair / 4 % 2 : 0;
        const float* at = partial + map.row * PITCH + 2 * map.pair * SUM_FLOATS;
        float total[2][SUMS] = {};
#pragma unroll
        for (int warp = 0; warp < SUMMING_WARPS; warp++) {
            const float* from = at + warp * rows * PITCH;
            if constexpr (SUMS == 1) {
                const Pair both = load_pair(from);
                total[0][0] += both.x;
                total[1][0] += both.y;
            } else {
#pragma unroll
                for (int which = 0; which < 2; which++) {
                    const UnitSums unit = *reinterpret_cast<const UnitSums*>(from + (which ^ swapped) * SUM_FLOATS);
#pragma unroll
                    for (int sum = 0; sum < SUMS; sum++) total[which][sum] += unit.of[sum];
                }
            }
        }
#pragma unroll
        for (int sum = 0; sum < SUMS; sum++)
            sums[sum] = swapped ? Pair{total[1][sum], total[0][sum]} : Pair{total[0][sum], total[1][sum]};
    }

    DEVICE void poll_words(uint16_t* source, int pitch, Words (&words)[SHARE]) const {
        const int warp = thread_index() / LANES, lane = thread_index() % LANES, r = lane / 4, q = lane % 4;
        uint16_t* here = source + r * pitch + first_tile(warp) * TILE_COLUMNS + 8 * q;
        bool empty = true;
        for (int polls = 0; any_lane(empty); polls++) {
            if (polls > MAX_POLLS) trap();
            empty = false;
#pragma unroll
            for (int share = 0; share < SHARE; share++) {
                words[share] = {0, 0, 0, 0};
                if (has_tile(warp, share)) words[share] = load_cluster(here + share * TILE_STRIDE * TILE_COLUMNS);
                empty = empty || is_empty(words[share]);
            }
        }
#pragma unroll
        for (int share = 0; share < SHARE; share++)
            if (has_tile(warp, share))
                *reinterpret_cast<Words*>(here + share * TILE_STRIDE * TILE_COLUMNS) = {EMPTY, EMPTY, EMPTY, EMPTY};
    }

    DEVICE void multiply_words(const Words (&words)[SHARE], float* partial) const {
        const int warp = thread_index() / LANES, lane = thread_index() % LANES, r = lane / 4, q = lane % 4;
        float sums[CHAINS][TILES][4] = {};
#pragma unroll
        for (int share = 0; share < SHARE; share++)
            if (has_tile(warp, share)) multiply(sums, share, words[share]);
        store(sums, partial + (warp * TILE_ROWS + 2 * q) * PITCH, r);
    }

    // partial (SUMMING_WARPS, chunk_rows, PITCH) receives each warp's sums
    DEVICE void gather_rows(const uint16_t* source, int rows, int warp, float* partial, int chunk_rows) const {
        const int lane = thread_index() % LANES, r = lane / 4, q = lane % 4;
        const int tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
        const uint16_t* here = address(source, r, rows, warp, q);
        Words next[PREFETCH];
        load_round(next, here, 0, warp);
        for (int tile = 0; tile < tiles; tile++) {
            const uint16_t* below = address(source, (tile + 1) * TILE_ROWS + r, rows, warp, q);  // of the next tile
            float sums[CHAINS][TILES][4] = {};
#pragma unroll
            for (int round = 0; round < ROUNDS; round++) {
                const bool last = round + 1 == ROUNDS, more = !last || tile + 1 < tiles;
                const uint16_t* ahead = last ? below : here;
                const int ahead_round = last ? 0 : round + 1;
                Words now[PREFETCH];
#pragma unroll
                for (int i = 0; i < PREFETCH; i++) now[i] = next[i];
                // The next words are loaded early only where these rows are the last: failed polls compete with writes.
                if (more && tiles == 1) load_round(next, ahead, ahead_round, warp);
                for (int polls = 0; any_lane(any_empty(now)); polls++) {
                    if (polls > MAX_POLLS) trap();
                    back_off();
                    reload_empty(now, here, round);
                }
                if (more && tiles > 1) load_round(next, ahead, ahead_round, warp);
#pragma unroll
                for (int i = 0; i < PREFETCH; i++) {
                    const int share = round * PREFETCH + i;
                    if (share < SHARE && has_tile(warp, share)) multiply(sums, share, now[i]);
                }
            }
            here = below;
            store(sums, partial + (warp * chunk_rows + tile * TILE_ROWS + 2 * q) * PITCH, r);
        }
    }

    // Sums e of a tile are those of a lane's first or second unit (e / 2) for rows 2q and 2q + 1 (e % 2) of the batch.
    static DEVICE void store(const float (&sums)[CHAINS][TILES][4], float* row, int r) {
#pragma unroll
        for (int unit_tile = 0; unit_tile < UNIT_TILES; unit_tile++)
#pragma unroll
            for (int column = 0; column < 2; column++) {
                UnitSums first = {}, second = {};
#pragma unroll
                for (int sum = 0; sum < SUMS; sum++)
#pragma unroll
                    for (int chain = 0; chain < CHAINS; chain++) {
                        first.of[sum] += sums[chain][unit_tile * SUMS + sum][column];
                        second.of[sum] += sums[chain][unit_tile * SUMS + sum][2 + column];
                    }
                float* at = row + column * PITCH + unit_tile * 16 * SUM_FLOATS;
                if (TRANSPOSED) {
                    *reinterpret_cast<Pair*>(at + 2 * r) = {first.of[0], second.of[0]};
                } else {
                    *reinterpret_cast<UnitSums*>(at + r * SUM_FLOATS) = first;
                    *reinterpret_cast<UnitSums*>(at + (r + 8) * SUM_FLOATS) = second;
                }
            }
    }

    // Rows past the last read the last row, which will be written: a poll of it ends. Their sums are not used.
    static DEVICE const uint16_t* address(const uint16_t* source, int row, int rows, int warp, int q) {
        const int64_t last = row < rows ? row : rows - 1;
        return source + last * (COLUMN_TILES * TILE_COLUMNS) + first_tile(warp) * TILE_COLUMNS + 8 * q;
    }

    static DEVICE void load_round(Words (&words)[PREFETCH], const uint16_t* from, int round, int warp) {
#pragma unroll
        for (int i = 0; i < PREFETCH; i++) {
            const int share = round * PREFETCH + i;
            words[i] = {0, 0, 0, 0};
            if (share < SHARE && has_tile(warp, share)) words[i] = load_exchanged(from + share * TILE_STRIDE * TILE_COLUMNS);
        }
    }
    static DEVICE void reload_empty(Words (&words)[PREFETCH], const uint16_t* from, int round) {
#pragma unroll
        for (int i = 0; i < PREFETCH; i++)
            if (is_empty(words[i])) words[i] = load_exchanged(from + (round * PREFETCH + i) * TILE_STRIDE * TILE_COLUMNS);
    }
    static DEVICE bool any_empty(const Words (&words)[PREFETCH]) {
        bool empty = false;
#pragma unroll
        for (int i = 0; i < PREFETCH; i++) empty = empty || is_empty(words[i]);
        return empty;
    }

    DEVICE void multiply(float (&sums)[CHAINS][TILES][4], int share, const Words& b) const {
        multiply_half<0>(sums, share, b);
        multiply_half<1>(sums, share, b);
    }
    template <int HALF>
    DEVICE void multiply_half(float (&sums)[CHAINS][TILES][4], int share, const Words& b) const {
#pragma unroll
        for (int t = 0; t < TILES; t++)
            weights.template multiply<HALF>(sums[(2 * share) % CHAINS][t], sums[(2 * share + 1) % CHAINS][t],
                                                    share * TILES + t, b);
    }
};
