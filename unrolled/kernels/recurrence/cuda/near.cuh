// How the blocks of a cluster pass numbers on through their shared memories: cluster.cu, gru_before_cluster.cu.
//
// A cluster has 8 rows of the batch. As in product.cuh, a word that is still all ones has not come; who reads one makes
// it all ones again. Two buffers take turns: a block writes to one only after all have sent it what they made of the other.
#pragma once

constexpr int BLOCKS_OF_CLUSTER = HIDDEN / UNITS, ROWS = TILE_ROWS, OWNERS = ROWS * UNITS / 2;
static_assert(HIDDEN % UNITS == 0 && BLOCKS_OF_CLUSTER <= 16 && OWNERS <= THREADS && WIDTH % 2 == 0);

DEVICE void clear(Words* first, int count) {
    for (int i = thread_index(); i < count; i += THREADS) first[i] = {NOT_YET, NOT_YET, NOT_YET, NOT_YET};
}

// Forward: numbers of all units, each shown to every block by the thread that has it.
struct Shown {
    static constexpr int PITCH = HIDDEN + 32, BUFFER = ROWS * PITCH;  // numbers of 16 bits
    static constexpr int bytes() { return 2 * BUFFER * 2; }

    uint16_t* buffers;  // (2, ROWS, PITCH)

    DEVICE explicit Shown(uint8_t* shared) : buffers(reinterpret_cast<uint16_t*>(shared)) {
        clear(reinterpret_cast<Words*>(buffers), 2 * BUFFER / 8);
    }
    DEVICE uint16_t* of_step(int step) const { return buffers + step % 2 * BUFFER; }
    DEVICE void show(const Place& place, int step, uint32_t word) const {
        uint16_t* to = of_step(step) + place.row * PITCH + place.unit();
#pragma unroll
        for (int block = 0; block < BLOCKS_OF_CLUSTER; block++) store_near(block, to, word);
    }
};

// Backward: a block multiplies the gradients of COLUMNS gates of its own with all their weights, and sends each block the
// part of the sums that is for its units.
template <class Number, int COLUMNS>
struct Scattered {
    static constexpr int BLOCKS = (COLUMNS + BLOCK - 1) / BLOCK;         // the last may be half empty
    static constexpr int PITCH = BLOCKS * BLOCK + 32;                    // numbers of 16 bits
    static constexpr int GATES_BUFFER = ROWS * PITCH;                    // 16 bits; (ROWS, PITCH)
    static constexpr int SUMS_OF_BLOCK = UNITS * ROWS;                   // floats; (UNITS / 2, ROWS, 2)
    static constexpr int SUMS_BUFFER = BLOCKS_OF_CLUSTER * SUMS_OF_BLOCK;
    static constexpr int TILES = HIDDEN / 16, SHARE = (TILES + WARPS - 1) / WARPS;
    static constexpr int bytes() { return 2 * SUMS_BUFFER * 4 + 2 * GATES_BUFFER * 2; }

    // A lane's sums of a tile, in two chains: of units 2r and 2r + 1 for rows 2q and 2q + 1.
    struct Tile {
        float of[2][4];
    };

    float* sums_buffers;      // (2, blocks, UNITS / 2, ROWS, 2)
    uint16_t* gates_buffers;  // (2, ROWS, PITCH)
    // rows 2r and 2r + 1 of tile `share * WARPS + warp`, over the columns of this block's gates
    Words weights[SHARE][BLOCKS][2];

    // matrix (gates * units, units)
    DEVICE Scattered(const uint16_t* matrix, const Place& place, uint8_t* shared) {
        const int warp = thread_index() / 32, lane = thread_index() % 32, r = lane / 4, q = lane % 4;
#pragma unroll
        for (int share = 0; share < SHARE; share++)
#pragma unroll
            for (int block = 0; block < BLOCKS; block++) {
                const int tile = share * WARPS + warp, column = block * BLOCK + 8 * q, gate = column / UNITS;
                const int first = place.first_unit + column % UNITS, seen = tile * 16 + 2 * r;  // units; of this block, of all
                const int64_t from = (static_cast<int64_t>(gate) * REAL_UNITS + first) * REAL_UNITS + seen;
                Words &low = weights[share][block][0], &high = weights[share][block][1];
                low = high = {0, 0, 0, 0};
                if (seen < REAL_UNITS && column < COLUMNS) load_transposed(matrix + from, REAL_UNITS - first, low, high);
            }
        sums_buffers = reinterpret_cast<float*>(shared);
        gates_buffers = reinterpret_cast<uint16_t*>(sums_buffers + 2 * SUMS_BUFFER);
        clear(reinterpret_cast<Words*>(sums_buffers), 2 * SUMS_BUFFER / 4);
        for (int i = thread_index(); i < GATES_BUFFER; i += THREADS) store_word(gates_buffers + 2 * i, 0u);
    }

    // A gate of this thread's units. All must have put theirs before they are sent.
    DEVICE void put(const Place& place, int turn, int gate, uint32_t word) const {
        store_word(gates_buffers + turn * GATES_BUFFER + place.row * PITCH + gate * UNITS + 2 * place.pair, word);
    }

    // The sums of what was put in `turn`, to be collected in `later`.
    DEVICE void send(int turn, int later) const {
        Tile none[SHARE] = {};
        finish<BLOCKS>(turn, none, later);
    }

    // The same in two parts, where the gates of the blocks from FIRST on are there before the others.
    template <int FIRST>
    DEVICE void begin(int turn, Tile (&sums)[SHARE]) const {
        Words b[BLOCKS];
        read<FIRST, BLOCKS>(turn, b);
#pragma unroll
        for (int share = 0; share < SHARE; share++) add<FIRST, BLOCKS>(sums[share], share, b);
    }
    template <int FIRST>
    DEVICE void finish(int turn, Tile (&sums)[SHARE], int later) const {
        const int warp = thread_index() / 32, lane = thread_index() % 32, r = lane / 4, q = lane % 4;
        const int rank = block_index() % BLOCKS_OF_CLUSTER;
        Words b[BLOCKS];
        read<0, FIRST>(turn, b);
#pragma unroll
        for (int share = 0; share < SHARE; share++) {
            const int tile = share * WARPS + warp;
            if (tile >= TILES) break;
            add<0, FIRST>(sums[share], share, b);
            const auto& both = sums[share].of;
            float* to = sums_buffers + later * SUMS_BUFFER + rank * SUMS_OF_BLOCK +
                        ((tile % SIXTEENS * 8 + r) * ROWS + 2 * q) * 2;
            store_near(tile / SIXTEENS, to,
                       {bits_of(both[0][0] + both[1][0]), bits_of(both[0][2] + both[1][2]),
                        bits_of(both[0][1] + both[1][1]), bits_of(both[0][3] + both[1][3])});
        }
    }

    // What all blocks sent to this thread's units.
    DEVICE Pair collect(const Place& place, int turn) const {
        float* mine = sums_buffers + turn * SUMS_BUFFER + (place.pair * ROWS + place.row) * 2;
        Pair sum = {};
        for (int waits = 0;; waits++) {
            bool missing = false;
            sum = {};
#pragma unroll
            for (int block = 0; block < BLOCKS_OF_CLUSTER; block++) {
                const Pair part = load_near_pair(mine + block * SUMS_OF_BLOCK);
                missing = missing || is_missing(part);
                sum = {sum.x + part.x, sum.y + part.y};
            }
            if (!any_lane(missing)) break;
            if (waits > MOST_WAITS) give_up();
        }
        const Pair none = {float_of(NOT_YET), float_of(NOT_YET)};
#pragma unroll
        for (int block = 0; block < BLOCKS_OF_CLUSTER; block++) store_pair(mine + block * SUMS_OF_BLOCK, none);
        return sum;
    }

   private:
    template <int FIRST, int END>
    DEVICE void read(int turn, Words (&b)[BLOCKS]) const {
        const int lane = thread_index() % 32, r = lane / 4, q = lane % 4;
        const uint16_t* gates = gates_buffers + turn * GATES_BUFFER + r * PITCH + 8 * q;
#pragma unroll
        for (int block = FIRST; block < END; block++) b[block] = *reinterpret_cast<const Words*>(gates + block * BLOCK);
    }
    template <int FIRST, int END>
    DEVICE void add(Tile& sums, int share, const Words (&b)[BLOCKS]) const {
#pragma unroll
        for (int block = FIRST; block < END; block++) {
            const Words &first = weights[share][block][0], &second = weights[share][block][1];
            Number::multiply(sums.of[0], first.x, second.x, first.y, second.y, b[block].x, b[block].y);
            Number::multiply(sums.of[1], first.z, second.z, first.w, second.w, b[block].z, b[block].w);
        }
    }
};

// Of the threads that own units backward, eight in a row have the rows of one pair: so their sums lie side by side.
DEVICE Place place_of_sums(const Arguments& a) {
    const int cluster = block_index() / BLOCKS_OF_CLUSTER, rank = block_index() % BLOCKS_OF_CLUSTER;
    return {a, cluster, rank, thread_index() % ROWS, thread_index() / ROWS};
}
