// The recurrent product of a team: TEAM blocks of one cluster, which share what they read (compute capability 9).
//
// Alone, every block reads whole rows of what all blocks have written. Here a block reads one part in TEAM of the
// columns, those that blocks of its rank have written (its own among them), multiplies them with the weights of all
// units of the team, and sends each block of the team its part of the sums, through its shared memory. A row is longer
// than a sum: backward, with all gates in it, by far.
//
// Who reads a sum makes its words all ones again, which is what they are until they come. There are two sets, for even
// and odd steps: a block sends sums of a step only after it has had the last step's from all others, each of which had
// by then read all it got the step before that.
#pragma once

// As Product has it; BLOCKS counts the blocks of 32 columns of all parts.
template <class Number, int SUMS, int BLOCKS, bool TRANSPOSED = false>
struct Team {
    static constexpr int GATES_OF_ROW = BLOCKS / WIDTH;                      // as many times HIDDEN columns are read
    static constexpr int SIXTEENS_OF_GATE = HIDDEN / 16 / TEAM;              // in this block's part
    static constexpr int EIGHTS = GATES_OF_ROW * SIXTEENS_OF_GATE * 2;       // columns of it, in eights: 16 bytes
    static constexpr int PART_BLOCKS = (EIGHTS + 3) / 4;                     // of 32 columns; the last may be half empty
    static constexpr int PITCH = (PART_BLOCKS + 1 - PART_BLOCKS % 2) * BLOCK;  // odd: no two lanes in one bank
    static constexpr int TILES = TEAM * SIXTEENS * SUMS;                     // tile t: sum t % SUMS of sixteen units
    static constexpr int SPLIT = TILES < WARPS ? WARPS / TILES : 1;          // warps that share the columns of a tile
    static constexpr int TILES_OF_WARP = (TILES + WARPS - 1) / WARPS;
    static constexpr int BLOCKS_OF_WARP = (PART_BLOCKS + SPLIT - 1) / SPLIT;
    static constexpr int PIECES = TILES_OF_WARP * BLOCKS_OF_WARP;
    static constexpr int PARTIALS = TEAM * SPLIT;                            // that make a sum
    static constexpr int PAIR_FLOATS = 2 * TILE_ROWS + 4;                    // two units, eight rows; again for the banks
    static constexpr int SUM_FLOATS = UNITS / 2 * PAIR_FLOATS;
    static constexpr int SET_FLOATS = PARTIALS * SUMS * SUM_FLOATS;          // for eight rows
    static constexpr int CHAINS = TILES_OF_WARP == 1 ? 4 : TILES_OF_WARP < 4 ? 2 : 1;
    static constexpr int AT_ONCE = 4;                                        // words that a thread waits for
    static_assert(HIDDEN % (16 * TEAM) == 0 && HIDDEN / UNITS % TEAM == 0);

    static constexpr int bytes(int chunk_rows, int chunks) {
        const int sums = 2 * chunks * chunk_rows / TILE_ROWS * SET_FLOATS * 4;
        return Weights<PIECES>::bytes() + sums + 2 * chunk_rows * PITCH * 2;
    }

    Weights<PIECES> weights;
    float* sums_sent;  // (2, row tiles, PARTIALS, SUMS, UNITS / 2, PAIR_FLOATS)
    uint16_t* staged;  // (2, chunk rows, PITCH)
    int row_tiles, staged_numbers, rank;

    DEVICE Team(const uint16_t* matrix, const Place& place, uint8_t* shared) {
        const int lane = thread_index() % 32, r = lane / 4, q = lane % 4;
        row_tiles = place.chunks * place.chunk_rows / TILE_ROWS;
        staged_numbers = place.chunk_rows * PITCH;
        rank = block_index() % TEAM;
        weights.spare = reinterpret_cast<Words*>(shared);
        sums_sent = reinterpret_cast<float*>(shared + weights.bytes());
        staged = reinterpret_cast<uint16_t*>(sums_sent + 2 * row_tiles * SET_FLOATS);
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) {
            const int tile = tile_of(piece % TILES_OF_WARP), block = block_of(piece / TILES_OF_WARP);
            const int eight = block * 4 + q, column = column_of(eight), first = column % HIDDEN;
            const int inside = tile % (SIXTEENS * SUMS), target = tile / (SIXTEENS * SUMS);
            const int unit = place.first_unit + (target - rank) * UNITS + inside / SUMS * 16 + 2 * r;
            Words low = {0, 0, 0, 0}, high = {0, 0, 0, 0};
            if (tile < TILES && eight < EIGHTS && unit < REAL_UNITS) {
                if (TRANSPOSED) {
                    const int64_t row = static_cast<int64_t>(column / HIDDEN) * REAL_UNITS + first;
                    load_transposed(matrix + row * REAL_UNITS + unit, REAL_UNITS - first, low, high);
                } else {
                    const int64_t row = static_cast<int64_t>(inside % SUMS) * REAL_UNITS + unit;
                    low = load_eight<REAL_UNITS>(matrix + row * REAL_UNITS, first);
                    high = load_eight<REAL_UNITS>(matrix + (row + 1) * REAL_UNITS, first);
                }
            }
            weights.put(piece, low, high);
        }
    }
    DEVICE void begin() const {
        const Words none = {NOT_YET, NOT_YET, NOT_YET, NOT_YET}, zero = {0, 0, 0, 0};
        Words *first = reinterpret_cast<Words*>(sums_sent), *columns = reinterpret_cast<Words*>(staged);
        for (int i = thread_index(); i < 2 * row_tiles * SET_FLOATS / 4; i += THREADS) first[i] = none;
        for (int i = thread_index(); i < 2 * staged_numbers / 8; i += THREADS) columns[i] = zero;
        sync_cluster();
    }
    DEVICE void end() const { sync_cluster(); }  // nobody leaves while others write to its memory

    // Reads this block's columns of a chunk's rows, (·, BLOCKS * BLOCK), as they arrive, and sends sums to all blocks.
    DEVICE void gather(const uint16_t* source, const Place& place, int step, int chunk) const {
        const int rows = place.rows_of(chunk), turn = (step * place.chunks + chunk) & 1;
        uint16_t* here = staged + turn * staged_numbers;
        for (int first = thread_index(); first < rows * EIGHTS; first += AT_ONCE * THREADS) stage(source, rows, here, first);
        sync_block();
        const int first_tile = (step & 1) * row_tiles + chunk * place.chunk_rows / TILE_ROWS;
        for (int tile = 0; tile * TILE_ROWS < rows; tile++)
            multiply(here + tile * TILE_ROWS * PITCH, sums_sent + (first_tile + tile) * SET_FLOATS);
    }

    DEVICE void sum(const Place& place, int step, int chunk, Pair (&sums)[SUMS]) const {
        const int row = chunk * place.chunk_rows + place.row;
        float* from = sums_sent + ((step & 1) * row_tiles + row / TILE_ROWS) * SET_FLOATS + place.pair * PAIR_FLOATS +
                      row % TILE_ROWS * 2;
        for (int waits = 0;; waits++) {
            bool missing = false;
#pragma unroll
            for (int sum = 0; sum < SUMS; sum++) {
                sums[sum] = {0.0f, 0.0f};
#pragma unroll
                for (int partial = 0; partial < PARTIALS; partial++) {
                    const Pair part = load_near_pair(from + (partial * SUMS + sum) * SUM_FLOATS);
                    missing = missing || is_missing(part);
                    sums[sum] = {sums[sum].x + part.x, sums[sum].y + part.y};
                }
            }
            if (!missing) break;
            if (waits > MOST_WAITS) give_up();
        }
        const Pair none = {float_of(NOT_YET), float_of(NOT_YET)};
#pragma unroll
        for (int i = 0; i < PARTIALS * SUMS; i++) *reinterpret_cast<Pair*>(from + i * SUM_FLOATS) = none;
    }

   private:
    // Of this warp. Where warps share a tile, those of one tile have neighbouring blocks of columns.
    static DEVICE int tile_of(int index) {
        const int warp = thread_index() / 32;
        return SPLIT == 1 ? index * WARPS + warp : warp < TILES * SPLIT ? warp % TILES : TILES;
    }
    static DEVICE int block_of(int index) { return index * SPLIT + (SPLIT == 1 ? 0 : thread_index() / 32 / TILES); }

    // Where eight columns of this block's part lie in a row.
    DEVICE int column_of(int eight) const {
        const int sixteen = eight / 2, gate = sixteen / SIXTEENS_OF_GATE, of_gate = sixteen % SIXTEENS_OF_GATE;
        const int slice = of_gate / SIXTEENS * TEAM + rank;
        return gate * HIDDEN + slice * UNITS + of_gate % SIXTEENS * 16 + eight % 2 * 8;
    }

    // Every THREADS-th of AT_ONCE words, of `rows` rows with EIGHTS words each, from memory to the staging place.
    DEVICE void stage(const uint16_t* source, int rows, uint16_t* to, int first) const {
        Words words[AT_ONCE];
        const uint16_t* from[AT_ONCE];
        bool missing = true;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int word = first + i * THREADS, row = word / EIGHTS;
            from[i] = source + static_cast<int64_t>(row) * (BLOCKS * BLOCK) + column_of(word % EIGHTS);
            words[i] = {0, 0, 0, 0};
            if (row < rows) words[i] = load_exchanged(from[i]);
        }
        for (int waits = 0; missing; waits++) {
            missing = false;
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) missing = missing || is_missing(words[i]);
            if (waits > MOST_WAITS) give_up();
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                if (is_missing(words[i])) words[i] = load_exchanged(from[i]);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int word = first + i * THREADS, row = word / EIGHTS;
            if (row < rows) *reinterpret_cast<Words*>(to + row * PITCH + word % EIGHTS * 8) = words[i];
        }
    }

    // Eight rows; lane (r, q) ends with units 2r and 2r + 1 of each tile for rows 2q and 2q + 1.
    DEVICE void multiply(const uint16_t* rows, float* set) const {
        const int lane = thread_index() % 32, r = lane / 4, q = lane % 4;
        float sums[CHAINS][TILES_OF_WARP][4] = {};
#pragma unroll
        for (int index = 0; index < BLOCKS_OF_WARP; index++) {
            if (BLOCKS_OF_WARP * SPLIT > PART_BLOCKS && block_of(index) >= PART_BLOCKS) break;
            const Words b = *reinterpret_cast<const Words*>(rows + r * PITCH + block_of(index) * BLOCK + 8 * q);
#pragma unroll
            for (int t = 0; t < TILES_OF_WARP; t++)
                weights.template multiply<Number>(sums[2 * index % CHAINS][t], sums[(2 * index + 1) % CHAINS][t],
                                                  index * TILES_OF_WARP + t, b);
        }
#pragma unroll
        for (int t = 0; t < TILES_OF_WARP; t++) {
            const int tile = tile_of(t), inside = tile % (SIXTEENS * SUMS), target = tile / (SIXTEENS * SUMS);
            if (tile >= TILES) continue;
            float total[4] = {};
#pragma unroll
            for (int chain = 0; chain < CHAINS; chain++)
#pragma unroll
                for (int e = 0; e < 4; e++) total[e] += sums[chain][t][e];
            const int partial = rank * SPLIT + (SPLIT == 1 ? 0 : thread_index() / 32 / TILES);
            float* to = set + (partial * SUMS + inside % SUMS) * SUM_FLOATS +
                        (inside / SUMS * 8 + r) * PAIR_FLOATS + 4 * q;
            store_near(target, to, {bits_of(total[0]), bits_of(total[2]), bits_of(total[1]), bits_of(total[3])});
        }
    }
};

template <class Number, int SUMS, int BLOCKS, bool TRANSPOSED = false>
using Recurrent = Team<Number, SUMS, BLOCKS, TRANSPOSED>;
