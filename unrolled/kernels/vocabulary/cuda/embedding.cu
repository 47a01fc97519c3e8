// The gradient of an embedding: the sum of the gradients of each token's vectors, in the tokens' order, so that it is the
// same in every run.
//
// A block adds up some tokens of the vocabulary in some columns. Its warps scan the batch for these tokens and list the
// places where they find them; then threads add the vectors at these places, SLICES threads for each column.
#include <device.cuh>

#include <arguments.h>

constexpr int AHEAD = 4;  // vectors that a thread loads before it adds them

struct Block {
    const Arguments& given;
    const int tiles, tile;
    const int64_t first;  // token of the vocabulary
    const int group;
    float* const sums;  // (group, SLICES, COLUMNS)
    int* const found;   // (WARPS, FOUND): place in the part of the batch that is scanned, and the token's place in the group
    int* const counts;  // (WARPS,)

    DEVICE Block(const Arguments& given)
        : given(given),
          tiles(static_cast<int>((given.width + COLUMNS - 1) / COLUMNS)),
          tile(block_index() % tiles),
          first(block_index() / tiles * given.group),
          group(static_cast<int>(given.group)),
          sums(reinterpret_cast<float*>(shared_memory())),
          found(reinterpret_cast<int*>(sums + group * SLICES * COLUMNS)),
          counts(found + WARPS * FOUND) {}

    // Lists the tokens from `begin` on that belong to this block; each warp scans its part of them.
    DEVICE void scan(int64_t begin) const {
        const int warp = thread_index() / LANES, lane = thread_index() % LANES;
        int count = 0;
        for (int i = 0; i < SCANNED; i++) {
            const int place = (warp * SCANNED + i) * LANES + lane;
            const int64_t token = begin + place < given.rows ? given.tokens[begin + place] : -1;
            const bool mine = token >= first && token < first + group && token != given.ignored;
            const uint32_t flags = ballot(mine);
            if (mine) found[warp * FOUND + count + set_bits(flags & ((1u << lane) - 1))] = place * group + static_cast<int>(token - first);
            count += set_bits(flags);
        }
        if (lane == 0) counts[warp] = count;
    }

    DEVICE void add(int64_t begin) const {
        const int column = thread_index() % COLUMNS, slice = thread_index() / COLUMNS;
        const int64_t at = tile * COLUMNS + column;
        if (at >= given.width) return;
        float* const mine = sums + slice * COLUMNS + column;
        for (int warp = 0; warp < WARPS; warp++) {
            const int count = counts[warp];
            const int* const list = found + warp * FOUND;
            for (int i = slice; i < count; i += SLICES * AHEAD) {
                float values[AHEAD];
#pragma unroll
                for (int k = 0; k < AHEAD; k++) {
                    const int which = i + k * SLICES;
                    values[k] = which < count ? given.d_vectors[(begin + list[which] / group) * given.width + at] : 0.0f;
                }
#pragma unroll
                for (int k = 0; k < AHEAD; k++) {
                    const int which = i + k * SLICES;
                    if (which < count) mine[list[which] % group * (SLICES * COLUMNS)] += values[k];
                }
            }
        }
    }

    DEVICE void write() const {
        for (int i = thread_index(); i < group * COLUMNS; i += THREADS) {
            const int64_t token = first + i / COLUMNS, at = tile * COLUMNS + i % COLUMNS;
            if (token >= given.vocabulary || at >= given.width) continue;
            float sum = 0.0f;
            for (int slice = 0; slice < SLICES; slice++) sum += sums[(i / COLUMNS * SLICES + slice) * COLUMNS + i % COLUMNS];
            given.d_weight[token * given.width + at] = sum;
        }
    }
};

// Blocks: one for each group of tokens and tile of columns. Shared memory: sums, places and counts.
KERNEL embedding(KERNEL_ARGUMENT Arguments given) {
    const Block block(given);
    for (int i = thread_index(); i < block.group * SLICES * COLUMNS; i += THREADS) block.sums[i] = 0.0f;
    for (int64_t begin = 0; begin < given.rows; begin += WARPS * FOUND) {
        sync_block();
        block.scan(begin);
        sync_block();
        block.add(begin);
    }
    sync_block();
    block.write();
}
