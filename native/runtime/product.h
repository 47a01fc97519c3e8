// The product of a few rows with a matrix that is packed once and used at every step.
//
// A packed matrix is a list of panels. A panel holds VECS vectors of columns for every k, so that the kernel reads it
// straight through; a tile of up to kMaxRows<VECS> rows of sums stays in registers while k runs.
#pragma once

#include "runtime/vec.h"

namespace unrolled::UNROLLED_NAMESPACE {

template <int VECS>
constexpr int kMaxRows = (kRegisters - 8) / VECS < 2 ? 2 : (kRegisters == 16 ? 12 : 24) / VECS;

// out[r][·] = Σ_k rows[r][k]·panel[k][·], or that much more with ADD
template <int ROWS, int VECS, bool ADD>
static inline void tile(const float* rows, ptrdiff_t row_stride, const float* panel, int depth, float* out) {
  Vec sums[ROWS][VECS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < VECS; ++v) sums[r][v] = ADD ? load(out + (r * VECS + v) * kLanes) : Vec{};
  for (int k = 0; k < depth; ++k) {
    Vec columns[VECS];
#pragma GCC unroll 8
    for (int v = 0; v < VECS; ++v) columns[v] = load(panel + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const float a = rows[r * row_stride + k];
#pragma GCC unroll 8
      for (int v = 0; v < VECS; ++v) sums[r][v] += a * columns[v];
    }
    panel += VECS * kLanes;
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < VECS; ++v) store(out + (r * VECS + v) * kLanes, sums[r][v]);
}

// out (count, VECS·kLanes) = rows (count, depth) · panel (depth, VECS·kLanes), or that much more with ADD
template <int VECS, bool ADD = false>
static void product(const float* rows, ptrdiff_t row_stride, int count, const float* panel, int depth, float* out) {
  const int blocks = ceil_div(count, kMaxRows<VECS>);
  for (int block = 0, row = 0; block < blocks; ++block) {
    const int size = (count - row) / (blocks - block);  // blocks as equal as can be: a last block of one row is slow
    const float* from = rows + row * row_stride;
    float* to = out + row * VECS * kLanes;
    switch (size) {
#define UNROLLED_CASE(ROWS)                                                                                       \
  case ROWS:                                                                                                      \
    if constexpr (ROWS <= kMaxRows<VECS>) tile<ROWS, VECS, ADD>(from, row_stride, panel, depth, to);              \
    break;
      UNROLLED_CASE(1)
      UNROLLED_CASE(2)
      UNROLLED_CASE(3)
      UNROLLED_CASE(4)
      UNROLLED_CASE(5)
      UNROLLED_CASE(6)
      UNROLLED_CASE(7)
      UNROLLED_CASE(8)
#undef UNROLLED_CASE
    }
    row += size;
  }
}

// Weight gradients: total[m][·] = Σ_k strip[k][m]·panel[k][·] for the kStrip rows m of one strip, or that much more with
// `add`. `rows` and `columns` say how much of the tile lies inside the matrix.
constexpr int kStripVecs = 4;
constexpr int kStrip = kMaxRows<kStripVecs>;

[[maybe_unused]] static void outer_product(const float* strip, const float* panel, int depth, float* total, ptrdiff_t stride, int rows,
                          int columns, bool add) {
  for (int r = 0; add && r < rows; ++r)  // it is added to at the very end, and may be far away
    for (int v = 0; v < kStripVecs; ++v) __builtin_prefetch(total + r * stride + v * kLanes, 1);
  Vec sums[kStrip][kStripVecs] = {};
  for (int k = 0; k < depth; ++k) {
    Vec right[kStripVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kStripVecs; ++v) right[v] = load(panel + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kStrip; ++r) {
      const float a = strip[r];
#pragma GCC unroll 8
      for (int v = 0; v < kStripVecs; ++v) sums[r][v] += a * right[v];
    }
    panel += kStripVecs * kLanes;
    strip += kStrip;
  }
  alignas(64) float tile[kStrip * kStripVecs * kLanes];
#pragma GCC unroll 8
  for (int r = 0; r < kStrip; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kStripVecs; ++v) store(tile + (r * kStripVecs + v) * kLanes, sums[r][v]);
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < kStripVecs && v * kLanes < columns; ++v) {
      float* to = total + r * stride + v * kLanes;
      const int count = columns - v * kLanes;
      const Vec before = add ? load(to, count) : Vec{};
      store(to, before + load(tile + (r * kStripVecs + v) * kLanes), count);
    }
}

// Packs rows of a matrix (rows, depth) as a panel's columns: gates of the same units side by side.
//
// The panel holds, for each k, `gates` groups of `blocks` vectors: matrix[gate·hidden + first_unit + …][k].
static void pack_gates(const float* matrix, int hidden, int depth, int gates, int blocks, int first_unit, float* panel) {
  const int width = gates * blocks * kLanes;
  for (int v = 0; v < gates * blocks; ++v) {
    const int unit = first_unit + v % blocks * kLanes;
    const int valid = hidden - unit < kLanes ? hidden - unit : kLanes;
    const float* rows = matrix + static_cast<size_t>(v / blocks * hidden + unit) * depth;
    float* to = panel + v * kLanes;
    int k = 0;
    for (; valid == kLanes && k + kLanes <= depth; k += kLanes) {
      Vec square[kLanes];
#pragma GCC unroll 16
      for (int lane = 0; lane < kLanes; ++lane) square[lane] = load(rows + static_cast<size_t>(lane) * depth + k);
      transpose(square);
#pragma GCC unroll 16
      for (int lane = 0; lane < kLanes; ++lane) store(to + static_cast<size_t>(k + lane) * width, square[lane]);
    }
    for (; k < depth; ++k)
      for (int lane = 0; lane < kLanes; ++lane)
        to[static_cast<size_t>(k) * width + lane] = lane < valid ? rows[static_cast<size_t>(lane) * depth + k] : 0.0f;
  }
}

// Packs columns of a matrix (depth, columns) as they are: the panel from `first` on, zeros beyond the edge.
[[maybe_unused]] static void pack_columns(const float* matrix, int columns, int depth, int width, int first, float* panel) {
  const int valid = columns - first < width ? columns - first : width;
  for (int k = 0; k < depth; ++k) {
    const float* row = matrix + static_cast<size_t>(k) * columns + first;
    for (int c = 0; c < valid; ++c) panel[c] = row[c];
    for (int c = valid < 0 ? 0 : valid; c < width; ++c) panel[c] = 0;
    panel += width;
  }
}

}  // namespace unrolled::UNROLLED_NAMESPACE
