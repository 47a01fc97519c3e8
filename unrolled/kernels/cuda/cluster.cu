// The recurrences of recurrence.cu for up to 256 units: a cluster of up to four blocks has all of them, and what a step
// gives to the next goes from block to block through their shared memories, in a third of the time of the cache.
//
// A block has 64 units and a cluster 8 rows of the batch. As in product.cuh, a word that is still all ones has not come.
#include <device.cuh>

#include <arguments.h>
#include <product.cuh>
#include <shared.cuh>
#include <place.cuh>
#include <cells.cuh>
#include <step.cuh>

constexpr int BLOCKS_OF_CLUSTER = HIDDEN / UNITS, ROWS = TILE_ROWS;
static_assert(UNITS == 64 && HIDDEN % UNITS == 0 && BLOCKS_OF_CLUSTER <= 4);

// Thread (warp, r, q) has units 2 * pair and 2 * pair + 1 of one row, those of which the tensor core gives it the sums.
DEVICE Place place_in_cluster(const Arguments& a, int row, int pair_of_warp) {
    const int block = block_index(), pair = thread_index() / 32 * 4 + pair_of_warp;
    return {a, block / BLOCKS_OF_CLUSTER, block % BLOCKS_OF_CLUSTER, row, pair};
}

DEVICE void clear(Words* first, int count) {
    for (int i = thread_index(); i < count; i += THREADS) first[i] = {NOT_YET, NOT_YET, NOT_YET, NOT_YET};
}

// Words of shared memory that other blocks are still writing.
template <int COUNT, int STRIDE>
DEVICE void wait_for(Words (&words)[COUNT], const uint16_t* from) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) words[i] = load_near(from + i * STRIDE);
    for (int waits = 0;; waits++) {
        bool missing = false;
#pragma unroll
        for (int i = 0; i < COUNT; i++) missing = missing || is_missing(words[i]);
        if (!any_lane(missing)) return;
        if (waits > MOST_WAITS) give_up();
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (is_missing(words[i])) words[i] = load_near(from + i * STRIDE);
    }
}

// Forward. A warp has 8 units with all their gates and reads every h: it needs no other warp's sums.
struct ForwardShared {
    static constexpr int PITCH = HIDDEN + 32, BUFFERS = 3, BUFFER = ROWS * PITCH;  // numbers of 16 bits
    static constexpr int bytes(int, int) { return BUFFERS * BUFFER * 2; }
};

KERNEL forward(GIVEN Arguments a) {
    constexpr int COUPLES = (GATES + 1) / 2, CHAINS = 2, PITCH = ForwardShared::PITCH;
    const int warp = thread_index() / 32, lane = thread_index() % 32, r = lane / 4, q = lane % 4;
    const bool odd = r % 2;
    const Place place = place_in_cluster(a, 2 * q + odd, r / 2);
    const int64_t row = place.batch_row(0);
    const int unit = place.unit();
    const bool owner = place.has_row(0);
    uint16_t* buffers = reinterpret_cast<uint16_t*>(shared_memory());  // (BUFFERS, ROWS, PITCH): h as it enters a step

    // rows r of a tile: gate 2 * couple of the warp's unit r; rows r + 8: the gate after it
    Words weights[COUPLES][WIDTH][2];
#pragma unroll
    for (int couple = 0; couple < COUPLES; couple++)
#pragma unroll
        for (int block = 0; block < WIDTH; block++)
#pragma unroll
            for (int second = 0; second < 2; second++) {
                const int gate = 2 * couple + second;
                const int64_t at = int64_t{gate * HIDDEN + place.first_unit + warp * 8 + r} * HIDDEN + block * BLOCK + 8 * q;
                weights[couple][block][second] = {0, 0, 0, 0};
                if (gate < GATES) weights[couple][block][second] = *reinterpret_cast<const Words*>(a.weights + at);
            }
    float own[2][3] = {};
    load_own(a.own, unit, own[0], own[1]);
    clear(reinterpret_cast<Words*>(buffers), ForwardShared::BUFFERS * ForwardShared::BUFFER / 8);
    sync_cluster();

    Pair h = {}, c = {};
    // The state that enters the step at t, if h and c left the one before, is shown to every block of the cluster.
    const auto enter = [&](int step) {
        const int t = place.time(step);
        if (owner && is_reset(a, row, t)) {
            h = state_pair<Number>(a.h_reset, row, HIDDEN, unit);
            c = state_pair<Number>(a.c_reset, row, HIDDEN, unit);
        }
        const uint32_t word = Number::pack(h.x, h.y);
        uint16_t* to = buffers + step % ForwardShared::BUFFERS * ForwardShared::BUFFER + place.row * PITCH + unit;
#pragma unroll
        for (int block = 0; block < BLOCKS_OF_CLUSTER; block++) store_near(block, to, word);
        if (owner && a.saved != nullptr) store_word(a.exchange + place.at(t, 0, HIDDEN), word);
    };
    if (owner) {
        h = state_pair<Number>(a.h_initial, row, HIDDEN, unit);
        c = state_pair<Number>(a.c_initial, row, HIDDEN, unit);
    }
    enter(0);

    for (int step = 0; step < place.steps; step++) {
        const int t = place.time(step);
        uint32_t given[GATES] = {};
        bool real = false;
        if (owner) {
            const uint16_t* from = a.gates_x + row * a.gates_x_row + t * a.gates_x_step + unit;
#pragma unroll
            for (int gate = 0; gate < GATES; gate++) given[gate] = load_word(from + gate * HIDDEN);
            real = is_real(a, row, t);
        }
        Words entering[WIDTH];
        wait_for<WIDTH, BLOCK>(entering, buffers + step % ForwardShared::BUFFERS * ForwardShared::BUFFER + r * PITCH + 8 * q);
        // Every h has come: all have read the buffer of the step before, and nobody writes to it before the step after next.
        uint16_t* used = buffers + (step + 2) % ForwardShared::BUFFERS * ForwardShared::BUFFER + warp * PITCH;
        if (8 * lane < HIDDEN) *reinterpret_cast<Words*>(used + 8 * lane) = {NOT_YET, NOT_YET, NOT_YET, NOT_YET};

        float sums[CHAINS][COUPLES][4] = {};
#pragma unroll
        for (int block = 0; block < WIDTH; block++)
#pragma unroll
            for (int couple = 0; couple < COUPLES; couple++) {
                const Words &low = weights[couple][block][0], &high = weights[couple][block][1], &b = entering[block];
                Number::multiply(sums[0][couple], low.x, high.x, low.y, high.y, b.x, b.y);
                Number::multiply(sums[1][couple], low.z, high.z, low.w, high.w, b.z, b.w);
            }
        // A lane has one unit for two rows; its neighbour has the next unit. They change: two units for one row.
        float x[2][GATES], u[2][GATES], saved[2][SAVED];
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) {
            const int couple = gate / 2, e = gate % 2 * 2;
            const float first = sums[0][couple][e] + sums[1][couple][e], second = sums[0][couple][e + 1] + sums[1][couple][e + 1];
            const float changed = from_lane_across(odd ? first : second, 4);
            u[0][gate] = odd ? changed : first;
            u[1][gate] = odd ? second : changed;
            const Pair part = Number::unpack(given[gate]);
            const Pair bias = a.bias == nullptr ? Pair{0.0f, 0.0f} : load_pair(a.bias + gate * HIDDEN + unit);
            x[0][gate] = part.x + bias.x;
            x[1][gate] = part.y + bias.y;
        }
        const Unit low = Cell::forward(x[0], u[0], own[0], {h.x, c.x}, saved[0]);
        const Unit high = Cell::forward(x[1], u[1], own[1], {h.y, c.y}, saved[1]);
        if (real) {
            h = {low.h, high.h};
            c = {low.c, high.c};
        }
        const Pair left_h = h, left_c = c;
        if (step + 1 < place.steps) enter(step + 1);  // others wait for this: first
        if (!owner) continue;
        store_word(a.output + row * a.output_row + t * a.output_step + unit, real ? Number::pack(left_h.x, left_h.y) : 0u);
        if (a.saved != nullptr) {
            uint16_t* to = a.saved + place.at(t, 0, SAVED * HIDDEN);
#pragma unroll
            for (int i = 0; i < SAVED; i++) store_word(to + i * HIDDEN, Number::pack(saved[0][i], saved[1][i]));
            if (Cell::HAS_MEMORY) store_pair(a.memory + place.at(t, 0, HIDDEN), left_c);
        }
    }
    if (owner) {
        store_word(a.h_final + row * HIDDEN + unit, Number::pack(h.x, h.y));
        if (Cell::HAS_MEMORY) store_word(a.c_final + row * HIDDEN + unit, Number::pack(c.x, c.y));
    }
    sync_cluster();  // nobody leaves while others write to its memory
}

// Backward. A block multiplies the gradients of its own gates with all their weights, and sends each block the part of
// the sums that is for its units.
struct BackwardShared {
    static constexpr int COLUMNS = GATES * UNITS, PITCH = COLUMNS + 32;  // numbers of 16 bits
    static constexpr int GATES_BUFFER = ROWS * PITCH;                    // 16 bits; (ROWS, PITCH)
    static constexpr int SUMS_OF_BLOCK = UNITS * ROWS;                   // floats; (UNITS / 2, ROWS, 2)
    static constexpr int SUMS_BUFFER = BLOCKS_OF_CLUSTER * SUMS_OF_BLOCK;
    static constexpr int bytes(int, int) { return 2 * SUMS_BUFFER * 4 + 2 * GATES_BUFFER * 2; }
};

KERNEL backward(GIVEN Arguments a) {
    using S = BackwardShared;
    constexpr int TILES = HIDDEN / 16, SHARE = (TILES + WARPS - 1) / WARPS, COLUMN_BLOCKS = S::COLUMNS / BLOCK, CHAINS = 2;
    const int warp = thread_index() / 32, lane = thread_index() % 32, r = lane / 4, q = lane % 4;
    const Place place = place_in_cluster(a, lane % 8, lane / 8);
    const int64_t row = place.batch_row(0);
    const int unit = place.unit(), rank = block_index() % BLOCKS_OF_CLUSTER;
    const bool owner = place.has_row(0);
    float* sums_buffers = reinterpret_cast<float*>(shared_memory());                      // (2, blocks, UNITS / 2, ROWS, 2)
    uint16_t* gates_buffers = reinterpret_cast<uint16_t*>(sums_buffers + 2 * S::SUMS_BUFFER);  // (2, ROWS, PITCH)

    // rows 2r and 2r + 1 of tile `share * WARPS + warp`, over the columns of this block's gates
    Words weights[SHARE][COLUMN_BLOCKS][2];
#pragma unroll
    for (int share = 0; share < SHARE; share++)
#pragma unroll
        for (int block = 0; block < COLUMN_BLOCKS; block++) {
            const int tile = share * WARPS + warp, column = block * BLOCK + 8 * q, gate = column / UNITS;
            const int64_t from = int64_t{gate * HIDDEN + place.first_unit + column % UNITS} * HIDDEN + tile * 16 + 2 * r;
            Words &low = weights[share][block][0], &high = weights[share][block][1];
            low = high = {0, 0, 0, 0};
            if (tile < TILES) load_transposed(a.weights + from, HIDDEN, low, high);
        }
    float own[2][3] = {};
    load_own(a.own, unit, own[0], own[1]);
    Pair d_bias[GATES] = {}, d_own[3] = {};
    clear(reinterpret_cast<Words*>(sums_buffers), 2 * S::SUMS_BUFFER / 4);
    sync_cluster();

    Pair dh = {}, dc = {};
    if (owner) {
        dh = state_pair<Number>(a.d_h_final, row, HIDDEN, unit);
        dc = state_pair<Number>(a.d_c_final, row, HIDDEN, unit);
    }
    for (int step = place.steps - 1; step >= -1; step--) {  // at -1 what is left is the initial state's
        const int turn = step & 1;
        Known known = {};
        if (owner && step >= 0) known.load(a, place, 0, step);
        if (step < place.steps - 1) {
            float* mine = sums_buffers + turn * S::SUMS_BUFFER + (place.pair * ROWS + place.row) * 2;
            for (int waits = 0;; waits++) {
                bool missing = false;
                Pair through = {};
#pragma unroll
                for (int block = 0; block < BLOCKS_OF_CLUSTER; block++) {
                    const Pair part = load_near_pair(mine + block * S::SUMS_OF_BLOCK);
                    missing = missing || bits_of(part.x) == NOT_YET || bits_of(part.y) == NOT_YET;
                    through = {through.x + part.x, through.y + part.y};
                }
                if (!any_lane(missing)) {
                    dh = {dh.x + through.x, dh.y + through.y};
                    break;
                }
                if (waits > MOST_WAITS) give_up();
            }
            const Pair none = {float_of(NOT_YET), float_of(NOT_YET)};
#pragma unroll
            for (int block = 0; block < BLOCKS_OF_CLUSTER; block++) store_pair(mine + block * S::SUMS_OF_BLOCK, none);
            if (owner) leave<HIDDEN>(a, row, place.time(step + 1), unit, dh, dc);
        }
        if (step < 0) break;

        const int t = place.time(step);
        Gone<GATES> low = {{}, 0.0f, dh.x, dc.x, {}}, high = {{}, 0.0f, dh.y, dc.y, {}};
        if (known.real) {
            low = known.back(0, own[0], dh.x, dc.x);
            high = known.back(1, own[1], dh.y, dc.y);
        }
        dh = {low.dh, high.dh};
        dc = {low.dc, high.dc};
        uint16_t* gates = gates_buffers + turn * S::GATES_BUFFER;
#pragma unroll
        for (int gate = 0; gate < GATES; gate++)
            store_word(gates + place.row * S::PITCH + gate * UNITS + 2 * place.pair, Number::pack(low.du[gate], high.du[gate]));
        sync_block();  // this step's gates are there; the sums of the step after have been read and cleared

        Words b[COLUMN_BLOCKS];
#pragma unroll
        for (int block = 0; block < COLUMN_BLOCKS; block++)
            b[block] = *reinterpret_cast<const Words*>(gates + r * S::PITCH + block * BLOCK + 8 * q);
#pragma unroll
        for (int share = 0; share < SHARE; share++) {
            const int tile = share * WARPS + warp;
            if (tile >= TILES) break;
            float sums[CHAINS][4] = {};
#pragma unroll
            for (int block = 0; block < COLUMN_BLOCKS; block++) {
                const Words &first = weights[share][block][0], &second = weights[share][block][1];
                Number::multiply(sums[0], first.x, second.x, first.y, second.y, b[block].x, b[block].y);
                Number::multiply(sums[1], first.z, second.z, first.w, second.w, b[block].z, b[block].w);
            }
            // units 2r and 2r + 1 of the tile for rows 2q and 2q + 1
            float* to = sums_buffers + (turn ^ 1) * S::SUMS_BUFFER + rank * S::SUMS_OF_BLOCK +
                        ((tile % 4 * 8 + r) * ROWS + 2 * q) * 2;
            store_near(tile / 4, to,
                       {bits_of(sums[0][0] + sums[1][0]), bits_of(sums[0][2] + sums[1][2]),
                        bits_of(sums[0][1] + sums[1][1]), bits_of(sums[0][3] + sums[1][3])});
        }

        if (!owner) continue;
        uint16_t *to = a.d_gates + place.at(t, 0, GATES * HIDDEN), *to_x = a.d_gates_x + place.at(t, 0, GATES * HIDDEN);
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) {
            const bool other = Cell::HAS_CANDIDATE && gate + 1 == GATES;
            const Pair d_x = other ? Pair{low.d_candidate, high.d_candidate} : Pair{low.du[gate], high.du[gate]};
            store_word(to + gate * HIDDEN, Number::pack(low.du[gate], high.du[gate]));
            if (Cell::HAS_CANDIDATE) store_word(to_x + gate * HIDDEN, Number::pack(d_x.x, d_x.y));
            d_bias[gate] = {d_bias[gate].x + d_x.x, d_bias[gate].y + d_x.y};
        }
#pragma unroll
        for (int i = 0; i < Cell::OWN; i++) d_own[i] = {d_own[i].x + low.d_own[i], d_own[i].y + high.d_own[i]};
    }
    if (owner) {
        store_word(a.d_h_initial + row * HIDDEN + unit, Number::pack(dh.x, dh.y));
        if (Cell::HAS_MEMORY) store_word(a.d_c_initial + row * HIDDEN + unit, Number::pack(dc.x, dc.y));
    }
#pragma unroll
    for (int gate = 0; gate < GATES; gate++)
        if (a.d_bias != nullptr) store_pair(a.d_bias + (place.tally_slot * GATES + gate) * HIDDEN + unit, d_bias[gate]);
#pragma unroll
    for (int i = 0; i < Cell::OWN; i++)
        if (a.d_own != nullptr) store_pair(a.d_own + (place.tally_slot * Cell::OWN + i) * HIDDEN + unit, d_own[i]);
    sync_cluster();
}
