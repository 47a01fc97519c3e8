// The units and rows of the batch that a block and a thread own, and the time of each step.
#pragma once

// A block owns BLOCK_UNITS units of one group of rows; the blocks of a group exchange numbers at every step. A group goes
// through its rows in chunks. In a chunk, a thread owns two neighbouring units of one row, the same two in every chunk.
constexpr int GROUP_BLOCKS = PADDED_SIZE / BLOCK_UNITS;

struct ThreadMap {
    int group_rows, chunk_rows, chunks, steps, batch;
    int64_t first_row;
    int rows;        // of this group
    int first_unit;  // of this block
    int row, pair;   // of this thread, in a chunk and in the block
    int64_t accumulator_row;  // row of this thread in the gradients of biases and unit weights
    bool reverse;
    bool inside;  // this thread's units are not padding

    // thread (row, pair) of the block that owns the units from `rank * BLOCK_UNITS` on
    DEVICE ThreadMap(const Arguments& a, int group, int rank, int row, int pair) : row(row), pair(pair) {
        group_rows = a.group_rows;
        chunk_rows = a.chunk_rows;
        steps = a.steps;
        batch = a.batch;
        first_row = a.first_row + static_cast<int64_t>(group) * group_rows;
        rows = a.end_row - first_row < group_rows ? a.end_row - first_row : group_rows;
        chunks = (rows + chunk_rows - 1) / chunk_rows;
        first_unit = rank * BLOCK_UNITS;
        accumulator_row = a.first_accumulator + group * chunk_rows + row;
        reverse = a.reverse;
        inside = HIDDEN_SIZE == PADDED_SIZE || unit() < HIDDEN_SIZE;
    }

    DEVICE int unit() const { return first_unit + 2 * pair; }
    DEVICE int time(int step) const { return reverse ? steps - 1 - step : step; }
    DEVICE int rows_of(int chunk) const {
        const int left = rows - chunk * chunk_rows;
        return left < chunk_rows ? left : chunk_rows;
    }
    DEVICE bool has_row(int chunk) const { return row < rows_of(chunk); }
    // Index of this thread's pair among those that the block keeps.
    DEVICE int slot(int chunk) const { return (chunk * chunk_rows + row) * (BLOCK_UNITS / 2) + pair; }
    DEVICE int64_t batch_row(int chunk) const { return first_row + chunk * chunk_rows + row; }
    // Offsets in a buffer (T, B, width): of a chunk, and of this thread's units.
    DEVICE int64_t first_of_chunk(int t, int chunk, int width) const {
        return (static_cast<int64_t>(t) * batch + first_row + chunk * chunk_rows) * width;
    }
    DEVICE int64_t at(int t, int chunk, int width) const { return first_of_chunk(t, chunk, width) + row * width + unit(); }
};

// Neighbouring threads own neighbouring pairs of units.
DEVICE ThreadMap map_threads(const Arguments& a) {
    return {a, block_index() / GROUP_BLOCKS, block_index() % GROUP_BLOCKS, thread_index() / (BLOCK_UNITS / 2),
            thread_index() % (BLOCK_UNITS / 2)};
}
