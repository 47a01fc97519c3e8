// The recurrences of recurrence.cu for up to 512 units: the blocks of a group are a cluster of up to sixteen, and what a
// step gives to the next goes from block to block through their shared memories, not through the cache.
//
// A cluster has 8 rows of the batch. As in product.cuh, a word that is still all ones has not come; who reads one makes
// it all ones again. Two buffers take turns: a block writes to one only after all have sent it what they made of the other.
#include <device.cuh>

#include <arguments.h>
#include <weights.cuh>
#include <shared.cuh>
#include <place.cuh>
#include <product.cuh>
#include <bias.cuh>
#include <cells.cuh>
#include <step.cuh>

constexpr int BLOCKS_OF_CLUSTER = HIDDEN / UNITS, ROWS = TILE_ROWS, OWNERS = ROWS * UNITS / 2;
static_assert(HIDDEN % UNITS == 0 && BLOCKS_OF_CLUSTER <= 16 && OWNERS <= THREADS && WIDTH % 2 == 0);

DEVICE void clear(Words* first, int count) {
    for (int i = thread_index(); i < count; i += THREADS) first[i] = {NOT_YET, NOT_YET, NOT_YET, NOT_YET};
}

using ForwardProduct = Product<Number, GATES, WIDTH, false, true>;

struct ForwardShared {
    static constexpr int PITCH = HIDDEN + 32, BUFFER = ROWS * PITCH;  // numbers of 16 bits
    static constexpr int bytes(int, int) { return 2 * BUFFER * 2 + ForwardProduct::bytes(ROWS); }
};

KERNEL forward(GIVEN Arguments a) {
    using S = ForwardShared;
    const Place place = place_of_thread(a, BLOCKS_OF_CLUSTER);
    const int64_t row = place.batch_row(0);
    const int unit = place.unit();
    const bool owner = thread_index() < OWNERS, real_row = owner && place.has_row(0);
    uint16_t* buffers = reinterpret_cast<uint16_t*>(shared_memory());         // (2, ROWS, PITCH): h as it enters a step
    const ForwardProduct product(a.weights, place, shared_memory() + 2 * S::BUFFER * 2);
    float own[2][3] = {};
    Pair bias[GATES] = {}, h = {}, c = {};
    uint32_t given[GATES] = {}, ahead[GATES] = {};  // the input's part of the gates; of the next step
    const auto load_input = [&](int step) {
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) ahead[gate] = input_word(a, place, row, place.time(step), gate);
    };
    if (real_row) {
        load_own(a, place, own[0], own[1]);
        h = state_pair<Number>(a.h_initial, place, row);
        c = state_pair<Number>(a.c_initial, place, row);
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) bias[gate] = {bias_of(a, gate, unit), bias_of(a, gate, unit + 1)};
        load_input(0);
    }
    clear(reinterpret_cast<Words*>(buffers), 2 * S::BUFFER / 8);
    sync_cluster();

    // The state that enters a step, if h and c left the one before, is shown to every block.
    const auto enter = [&](int step) {
        const int t = place.time(step);
        if (real_row && is_reset(a, row, t)) {
            h = state_pair<Number>(a.h_reset, place, row);
            c = state_pair<Number>(a.c_reset, place, row);
        }
        const uint32_t word = Number::pack(h.x, h.y);
        uint16_t* to = buffers + step % 2 * S::BUFFER + place.row * S::PITCH + unit;
#pragma unroll
        for (int block = 0; block < BLOCKS_OF_CLUSTER; block++) store_near(block, to, word);
        if (real_row && a.saved != nullptr) store_word(a.exchange + place.at(t, 0, HIDDEN), word);
    };
    if (owner) enter(0);

    for (int step = 0; step < place.steps; step++) {
        const int t = place.time(step);
        bool real = false;
        if (real_row) {
#pragma unroll
            for (int gate = 0; gate < GATES; gate++) given[gate] = ahead[gate];
            if (step + 1 < place.steps) load_input(step + 1);
            real = is_real(a, row, t);
        }
        product.gather_near(buffers + step % 2 * S::BUFFER, S::PITCH, step);
        if (!owner) continue;

        Pair sums[GATES];
        product.sum_near(place, step, sums);
        float x[2][GATES], u[2][GATES], saved[2][SAVED];
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) {
            const Pair part = Number::unpack(given[gate]);
            x[0][gate] = part.x + bias[gate].x;
            x[1][gate] = part.y + bias[gate].y;
            u[0][gate] = sums[gate].x;
            u[1][gate] = sums[gate].y;
        }
        const Unit low = Cell::forward(x[0], u[0], own[0], {h.x, c.x}, saved[0]);
        const Unit high = Cell::forward(x[1], u[1], own[1], {h.y, c.y}, saved[1]);
        if (real) {
            h = {low.h, high.h};
            c = {low.c, high.c};
        }
        const Pair left_h = h, left_c = c;
        if (step + 1 < place.steps) enter(step + 1);  // others wait for this: first
        if (!real_row) continue;
        store_output(a, place, row, t, real ? Number::pack(left_h.x, left_h.y) : 0u);
        if (a.saved != nullptr) {
            uint16_t* to = a.saved + place.at(t, 0, SAVED * HIDDEN);
#pragma unroll
            for (int i = 0; i < SAVED; i++) store_word(to + i * HIDDEN, Number::pack(saved[0][i], saved[1][i]));
            if (Cell::HAS_MEMORY) store_pair(a.memory + place.at(t, 0, HIDDEN), left_c);
        }
    }
    if (real_row) {
        store_state<Number>(a.h_final, place, row, h);
        if (Cell::HAS_MEMORY) store_state<Number>(a.c_final, place, row, c);
    }
    sync_cluster();  // nobody leaves while others write to its memory
}

// Backward. A block multiplies the gradients of its own gates with all their weights, and sends each block the part of
// the sums that is for its units.
struct BackwardShared {
    static constexpr int COLUMNS = GATES * UNITS, BLOCKS = (COLUMNS + BLOCK - 1) / BLOCK;  // the last may be half empty
    static constexpr int PITCH = BLOCKS * BLOCK + 32;                    // numbers of 16 bits
    static constexpr int GATES_BUFFER = ROWS * PITCH;                    // 16 bits; (ROWS, PITCH)
    static constexpr int SUMS_OF_BLOCK = UNITS * ROWS;                   // floats; (UNITS / 2, ROWS, 2)
    static constexpr int SUMS_BUFFER = BLOCKS_OF_CLUSTER * SUMS_OF_BLOCK;
    static constexpr int TALLY = 2 * SUMS_BUFFER * 4 + 2 * GATES_BUFFER * 2;  // where what is summed up of `own` begins
    static constexpr int bytes(int, int) { return TALLY + 2 * Cell::OWN * THREADS * 4; }
};

KERNEL backward(GIVEN Arguments a) {
    using S = BackwardShared;
    constexpr int TILES = HIDDEN / 16, SHARE = (TILES + WARPS - 1) / WARPS, COLUMN_BLOCKS = S::BLOCKS, CHAINS = 2;
    const int warp = thread_index() / 32, lane = thread_index() % 32, r = lane / 4, q = lane % 4;
    const int rank = block_index() % BLOCKS_OF_CLUSTER;
    // of the threads that own units, eight in a row have the rows of one pair: so their sums lie side by side
    const Place place = {a, block_index() / BLOCKS_OF_CLUSTER, rank, thread_index() % ROWS, thread_index() / ROWS};
    const int64_t row = place.batch_row(0);
    const int unit = place.unit();
    const bool owner = thread_index() < OWNERS, real_row = owner && place.has_row(0);
    float* sums_buffers = reinterpret_cast<float*>(shared_memory());                      // (2, blocks, UNITS / 2, ROWS, 2)
    uint16_t* gates_buffers = reinterpret_cast<uint16_t*>(sums_buffers + 2 * S::SUMS_BUFFER);  // (2, ROWS, PITCH)

    // rows 2r and 2r + 1 of tile `share * WARPS + warp`, over the columns of this block's gates
    Words weights[SHARE][COLUMN_BLOCKS][2];
#pragma unroll
    for (int share = 0; share < SHARE; share++)
#pragma unroll
        for (int block = 0; block < COLUMN_BLOCKS; block++) {
            const int tile = share * WARPS + warp, column = block * BLOCK + 8 * q, gate = column / UNITS;
            const int first = place.first_unit + column % UNITS, seen = tile * 16 + 2 * r;  // units; of this block, of all
            const int64_t from = (static_cast<int64_t>(gate) * REAL_UNITS + first) * REAL_UNITS + seen;
            Words &low = weights[share][block][0], &high = weights[share][block][1];
            low = high = {0, 0, 0, 0};
            if (seen < REAL_UNITS && column < S::COLUMNS)
                load_transposed(a.weights + from, REAL_UNITS - first, low, high);
        }
    float own[2][3] = {};
    Pair d_bias[GATES] = {};
    const Tally d_own(reinterpret_cast<float*>(shared_memory() + S::TALLY), Cell::OWN);
    Known ahead = {};
    clear(reinterpret_cast<Words*>(sums_buffers), 2 * S::SUMS_BUFFER / 4);
    for (int i = thread_index(); i < S::GATES_BUFFER; i += THREADS) store_word(gates_buffers + 2 * i, 0u);
    sync_cluster();

    Pair dh = {}, dc = {};
    if (real_row) {
        load_own(a, place, own[0], own[1]);
        dh = state_pair<Number>(a.d_h_final, place, row);
        dc = state_pair<Number>(a.d_c_final, place, row);
        ahead.load(a, place, 0, place.steps - 1);
    }
    for (int step = place.steps - 1; step >= -1; step--) {  // at -1 what is left is the initial state's
        const int turn = step & 1;
        const Known known = ahead;
        if (real_row && step > 0) ahead.load(a, place, 0, step - 1);
        if (owner && step < place.steps - 1) {
            float* mine = sums_buffers + turn * S::SUMS_BUFFER + (place.pair * ROWS + place.row) * 2;
            for (int waits = 0;; waits++) {
                bool missing = false;
                Pair through = {};
#pragma unroll
                for (int block = 0; block < BLOCKS_OF_CLUSTER; block++) {
                    const Pair part = load_near_pair(mine + block * S::SUMS_OF_BLOCK);
                    missing = missing || is_missing(part);
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
            if (real_row) leave(a, place, row, place.time(step + 1), dh, dc);
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
        for (int gate = 0; gate < GATES && owner; gate++)
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
                        ((tile % SIXTEENS * 8 + r) * ROWS + 2 * q) * 2;
            store_near(tile / SIXTEENS, to,
                       {bits_of(sums[0][0] + sums[1][0]), bits_of(sums[0][2] + sums[1][2]),
                        bits_of(sums[0][1] + sums[1][1]), bits_of(sums[0][3] + sums[1][3])});
        }

        if (!real_row) continue;
        uint16_t* to = a.d_gates + place.at(t, 0, GATES * HIDDEN);
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) {
            const bool other = Cell::HAS_CANDIDATE && gate + 1 == GATES;
            const Pair d_x = other ? Pair{low.d_candidate, high.d_candidate} : Pair{low.du[gate], high.du[gate]};
            store_word(to + gate * HIDDEN, Number::pack(low.du[gate], high.du[gate]));
            store_d_input<Cell::HAS_CANDIDATE>(a, place, row, t, GATES, gate, Number::pack(d_x.x, d_x.y));
            d_bias[gate] = {d_bias[gate].x + d_x.x, d_bias[gate].y + d_x.y};
        }
#pragma unroll
        for (int i = 0; i < Cell::OWN; i++) d_own.add(i, low.d_own[i], high.d_own[i]);
    }
    if (real_row) {
        store_state<Number>(a.d_h_initial, place, row, dh);
        if (Cell::HAS_MEMORY) store_state<Number>(a.d_c_initial, place, row, dc);
    }
    if (owner && a.d_bias != nullptr)
#pragma unroll
        for (int gate = 0; gate < GATES; gate++)
            store_pair(a.d_bias + (place.tally_slot * GATES + gate) * HIDDEN + unit, d_bias[gate]);
    if (owner) write_tally<Cell::OWN>(place, d_own, 0, a.d_own);
    sync_cluster();
}
