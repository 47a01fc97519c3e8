// Exchange between the blocks of a cluster through their shared memories.
//
// A cluster has TILE_ROWS rows of the batch. A reader polls words until they are not EMPTY, and makes them EMPTY again. Two
// buffers take turns: a block writes to one only after all blocks have sent it their results from the other.
#pragma once

constexpr int ROWS = TILE_ROWS, OWNERS = ROWS * BLOCK_UNITS / 2;
static_assert(GROUP_BLOCKS <= MAX_CLUSTER_BLOCKS && OWNERS <= THREADS && WIDTH_TILES % 2 == 0);

DEVICE void clear(Words* first, int count) {
    for (int i = thread_index(); i < count; i += THREADS) first[i] = {EMPTY, EMPTY, EMPTY, EMPTY};
}

// Forward: numbers of all units, each sent to every block by the thread that owns it.
struct Broadcast {
    static constexpr int PITCH = PADDED_SIZE + EXCHANGE_PADDING, BUFFER = ROWS * PITCH;  // 16-bit numbers
    static constexpr int bytes() { return 2 * BUFFER * 2; }

    uint16_t* buffers;  // (2, ROWS, PITCH)

    DEVICE explicit Broadcast(uint8_t* shared) : buffers(reinterpret_cast<uint16_t*>(shared)) {
        clear(reinterpret_cast<Words*>(buffers), 2 * BUFFER / 8);
    }
    DEVICE uint16_t* buffer(int step) const { return buffers + step % 2 * BUFFER; }
    DEVICE void send(const ThreadMap& map, int step, uint32_t word) const {
        uint16_t* to = buffer(step) + map.row * PITCH + map.unit();
#pragma unroll
        for (int block = 0; block < GROUP_BLOCKS; block++) store_cluster(block, to, word);
    }
};

// Backward: a block multiplies the gradients of its COLUMNS gates with all their weights, and sends every block the part of
// the sums for its units.
template <int COLUMNS>
struct ReduceScatter {
    static constexpr int COLUMN_TILES = (COLUMNS + TILE_COLUMNS - 1) / TILE_COLUMNS;         // the last may be half empty
    static constexpr int PITCH = COLUMN_TILES * TILE_COLUMNS + EXCHANGE_PADDING;  // 16-bit numbers
    static constexpr int GATES_BUFFER = ROWS * PITCH;                    // 16 bits; (ROWS, PITCH)
    static constexpr int SUMS_OF_BLOCK = BLOCK_UNITS * ROWS;                   // floats; (UNITS / 2, ROWS, 2)
    static constexpr int SUMS_BUFFER = GROUP_BLOCKS * SUMS_OF_BLOCK;
    static constexpr int TILES = PADDED_SIZE / FRAGMENT_ROWS, SHARE = (TILES + WARPS - 1) / WARPS;
    static constexpr int bytes() { return 2 * SUMS_BUFFER * 4 + 2 * GATES_BUFFER * 2; }

    // A lane's sums of a tile, in two chains: of units 2r and 2r + 1 for rows 2q and 2q + 1.
    struct Tile {
        float of[2][4];
    };

    float* sums_buffers;      // (2, blocks, UNITS / 2, ROWS, 2)
    uint16_t* gates_buffers;  // (2, ROWS, PITCH)
    // rows 2r and 2r + 1 of tile `share * WARPS + warp`, over the columns of this block's gates
    Words weights[SHARE][COLUMN_TILES][2];

    // matrix (gates * units, units)
    DEVICE ReduceScatter(const uint16_t* matrix, const ThreadMap& map, uint8_t* shared) {
        const int warp = thread_index() / LANES, lane = thread_index() % LANES, r = lane / 4, q = lane % 4;
#pragma unroll
        for (int share = 0; share < SHARE; share++)
#pragma unroll
            for (int block = 0; block < COLUMN_TILES; block++) {
                const int tile = share * WARPS + warp, column = block * TILE_COLUMNS + 8 * q, gate = column / BLOCK_UNITS;
                const int first = map.first_unit + column % BLOCK_UNITS, seen = tile * 16 + 2 * r;  // of this block; of all
                const int64_t from = (static_cast<int64_t>(gate) * HIDDEN_SIZE + first) * HIDDEN_SIZE + seen;
                Words &low = weights[share][block][0], &high = weights[share][block][1];
                low = high = {0, 0, 0, 0};
                if (seen < HIDDEN_SIZE && column < COLUMNS) load_transposed(matrix + from, HIDDEN_SIZE - first, low, high);
            }
        sums_buffers = reinterpret_cast<float*>(shared);
        gates_buffers = reinterpret_cast<uint16_t*>(sums_buffers + 2 * SUMS_BUFFER);
        clear(reinterpret_cast<Words*>(sums_buffers), 2 * SUMS_BUFFER / 4);
        for (int i = thread_index(); i < GATES_BUFFER; i += THREADS) store_word(gates_buffers + 2 * i, 0u);
    }

    // A gate of this thread's units. All threads put theirs before `send`.
    DEVICE void put(const ThreadMap& map, int turn, int gate, uint32_t word) const {
        store_word(gates_buffers + turn * GATES_BUFFER + map.row * PITCH + gate * BLOCK_UNITS + 2 * map.pair, word);
    }

    // Sends the sums of the gates put in `turn`, to be collected in `later`.
    DEVICE void send(int turn, int later) const {
        Tile zero[SHARE] = {};
        finish<COLUMN_TILES>(turn, zero, later);
    }

    // `send` in two parts, where the gates of the column tiles from FIRST on are put before the others.
    template <int FIRST>
    DEVICE void begin(int turn, Tile (&sums)[SHARE]) const {
        Words b[COLUMN_TILES];
        read<FIRST, COLUMN_TILES>(turn, b);
#pragma unroll
        for (int share = 0; share < SHARE; share++) add<FIRST, COLUMN_TILES>(sums[share], share, b);
    }
    template <int FIRST>
    DEVICE void finish(int turn, Tile (&sums)[SHARE], int later) const {
        const int warp = thread_index() / LANES, lane = thread_index() % LANES, r = lane / 4, q = lane % 4;
        const int rank = block_index() % GROUP_BLOCKS;
        Words b[COLUMN_TILES];
        read<0, FIRST>(turn, b);
#pragma unroll
        for (int share = 0; share < SHARE; share++) {
            const int tile = share * WARPS + warp;
            if (tile >= TILES) break;
            add<0, FIRST>(sums[share], share, b);
            const auto& both = sums[share].of;
            float* to = sums_buffers + later * SUMS_BUFFER + rank * SUMS_OF_BLOCK +
                        ((tile % UNIT_TILES * 8 + r) * ROWS + 2 * q) * 2;
            store_cluster(tile / UNIT_TILES, to,
                       {bits_of(both[0][0] + both[1][0]), bits_of(both[0][2] + both[1][2]),
                        bits_of(both[0][1] + both[1][1]), bits_of(both[0][3] + both[1][3])});
        }
    }

    // The sum of what all blocks sent for this thread's units.
    DEVICE Pair collect(const ThreadMap& map, int turn) const {
        float* mine = sums_buffers + turn * SUMS_BUFFER + (map.pair * ROWS + map.row) * 2;
        Pair sum = {};
        for (int polls = 0;; polls++) {
            bool empty = false;
            sum = {};
#pragma unroll
            for (int block = 0; block < GROUP_BLOCKS; block++) {
                const Pair part = load_cluster_pair(mine + block * SUMS_OF_BLOCK);
                empty = empty || is_empty(part);
                sum = {sum.x + part.x, sum.y + part.y};
            }
            if (!any_lane(empty)) break;
            if (polls > MAX_POLLS) trap();
        }
        const Pair cleared = {float_of(EMPTY), float_of(EMPTY)};
#pragma unroll
        for (int block = 0; block < GROUP_BLOCKS; block++) store_pair(mine + block * SUMS_OF_BLOCK, cleared);
        return sum;
    }

   private:
    template <int FIRST, int END>
    DEVICE void read(int turn, Words (&b)[COLUMN_TILES]) const {
        const int lane = thread_index() % LANES, r = lane / 4, q = lane % 4;
        const uint16_t* gates = gates_buffers + turn * GATES_BUFFER + r * PITCH + 8 * q;
#pragma unroll
        for (int block = FIRST; block < END; block++) b[block] = *reinterpret_cast<const Words*>(gates + block * TILE_COLUMNS);
    }
    template <int FIRST, int END>
    DEVICE void add(Tile& sums, int share, const Words (&b)[COLUMN_TILES]) const {
#pragma unroll
        for (int block = FIRST; block < END; block++) {
            const Words &first = weights[share][block][0], &second = weights[share][block][1];
            Number::multiply(sums.of[0], first.x, second.x, first.y, second.y, b[block].x, b[block].y);
            Number::multiply(sums.of[1], first.z, second.z, first.w, second.w, b[block].z, b[block].w);
        }
    }
};

// Backward, eight neighbouring threads own the rows of one pair of units, so that their sums are contiguous.
DEVICE ThreadMap map_sums(const Arguments& a) {
    return {a, block_index() / GROUP_BLOCKS, block_index() % GROUP_BLOCKS, thread_index() % ROWS, thread_index() / ROWS};
}
