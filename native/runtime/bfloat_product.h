// Products of bfloat16 with float32 sums, on processors that have an instruction for them: twice the speed of float32.
//
// A panel holds kPlainVecs vectors of columns for every pair of ks, the two of a column beside each other; rows are
// bfloat16 with an even depth.
#pragma once

#include "runtime/bfloat.h"
#include "runtime/platform.h"
#include "runtime/product.h"

namespace unrolled::UNROLLED_NAMESPACE {

constexpr int kNarrowVecs = 4;
constexpr int kNarrowWidth = kNarrowVecs * kLanes;

constexpr int even(int depth) { return depth + depth % 2; }

// A panel's floats, of which each holds two bfloat16.
constexpr size_t narrow_panel(int depth) { return static_cast<size_t>(even(depth)) / 2 * kNarrowWidth; }

// A row of float32 as bfloat16, with a zero after an odd depth.
static void narrow_row(const float* from, int depth, Bfloat* to) {
  int i = 0;
  for (; i + kLanes <= depth; i += kLanes) store_bfloat(to + i, load(from + i));
  for (; i < depth; ++i) to[i] = to_bfloat(from[i]);
  if (depth % 2) to[depth] = 0;
}

// Columns [first, first + columns) of rows of float32 as rows of bfloat16, `stride` apart, with zeros after an odd count.
[[maybe_unused]] static void narrow_transposed(const float* from, ptrdiff_t from_stride, int count, int first, int columns,
                                               Bfloat* to, ptrdiff_t stride) {
  for (int k = 0; k < count; k += kLanes) {
    const int rows = count - k < kLanes ? count - k : kLanes;
    for (int c = 0; c < columns; c += kLanes) {
      const int inside = columns - c < kLanes ? columns - c : kLanes;
      Vec square[kLanes];
      for (int r = 0; r < kLanes; ++r)
        square[r] = r < rows ? load(from + (k + r) * from_stride + first + c, inside) : Vec{};
      transpose(square);
      for (int r = 0; r < inside; ++r) store_bfloat(to + (c + r) * stride + k, square[r]);
    }
  }
}

// A panel of float32 (depth, kNarrowWidth), as `pack_gates` and `pack_columns` make it, as pairs of bfloat16.
static void narrow_pairs(const float* panel, int depth, float* pairs) {
  for (int k = 0; k < depth; k += 2, panel += 2 * kNarrowWidth, pairs += kNarrowWidth)
    for (int v = 0; v < kNarrowWidth; v += kLanes) {
      const BitVec high = k + 1 < depth ? rounded(load(panel + kNarrowWidth + v)) & 0xffff0000u : BitVec{};
      const BitVec both = rounded(load(panel + v)) >> 16 | high;
      __builtin_memcpy(pairs + v, &both, sizeof both);
    }
}

#if defined(__AVX512F__)
[[maybe_unused]] static bool narrow_runs() { return processor().avx512_bf16; }

template <int ROWS, bool ADD>
__attribute__((target("avx512bf16"))) static void narrow_tile(const Bfloat* rows, ptrdiff_t row_stride, const float* panel,
                                                              int depth, float* out) {
  __m512 sums[ROWS][kNarrowVecs];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kNarrowVecs; ++v)
      sums[r][v] = ADD ? _mm512_loadu_ps(out + (r * kNarrowVecs + v) * kLanes) : _mm512_setzero_ps();
  for (int k = 0; k < depth; k += 2) {
    __m512bh columns[kNarrowVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kNarrowVecs; ++v) columns[v] = (__m512bh)_mm512_loadu_ps(panel + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      int pair;
      __builtin_memcpy(&pair, rows + r * row_stride + k, sizeof pair);
      const __m512bh a = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 8
      for (int v = 0; v < kNarrowVecs; ++v) sums[r][v] = _mm512_dpbf16_ps(sums[r][v], a, columns[v]);
    }
    panel += kNarrowWidth;
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kNarrowVecs; ++v) _mm512_storeu_ps(out + (r * kNarrowVecs + v) * kLanes, sums[r][v]);
}

// out (count, kNarrowWidth) = rows (count, depth) · panel (depth, kNarrowWidth), or that much more with ADD
template <bool ADD = false>
static void narrow_product(const Bfloat* rows, ptrdiff_t row_stride, int count, const float* panel, int depth, float* out) {
  const int blocks = ceil_div(count, kMaxRows<kNarrowVecs>);
  for (int block = 0, row = 0; block < blocks; ++block) {
    const int size = (count - row) / (blocks - block);
    const Bfloat* from = rows + row * row_stride;
    float* to = out + row * kNarrowWidth;
    switch (size) {
      case 1: narrow_tile<1, ADD>(from, row_stride, panel, depth, to); break;
      case 2: narrow_tile<2, ADD>(from, row_stride, panel, depth, to); break;
      case 3: narrow_tile<3, ADD>(from, row_stride, panel, depth, to); break;
      case 4: narrow_tile<4, ADD>(from, row_stride, panel, depth, to); break;
      case 5: narrow_tile<5, ADD>(from, row_stride, panel, depth, to); break;
      case 6: narrow_tile<6, ADD>(from, row_stride, panel, depth, to); break;
    }
    row += size;
  }
}
#else
[[maybe_unused]] static bool narrow_runs() { return false; }
template <bool ADD = false>
static void narrow_product(const Bfloat*, ptrdiff_t, int, const float*, int, float*) {}
#endif

}  // namespace unrolled::UNROLLED_NAMESPACE
