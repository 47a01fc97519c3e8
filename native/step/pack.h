// A step's weights: packed once in float32, float16, 16-bit or 8-bit whole numbers, in the order a kernel reads them.
#pragma once

#include "recurrence/scan.h"
#include "runtime/platform.h"
#include "step/job.h"

namespace unrolled::UNROLLED_NAMESPACE {

// Rows of a panel: four vectors.
constexpr int kPanel = kPlainWidth;

// Whole numbers run from −kTop to kTop. With 16 bits, kRun products of two of them still fit in an int32.
constexpr int kTop8 = 127, kTop16 = 8191, kRun = 32;
static_assert(int64_t{kTop16} * kTop16 * kRun <= INT32_MAX);

// Whether there are instructions for products of 8-bit numbers, and what they want added to their inputs.
#if defined(__AVX512F__)
// The AVX-512 kernels run without VNNI too: this is asked at run time. VNNI takes inputs without a sign.
static const bool kByteProducts = processor().avx512_vnni;
constexpr int kByteOffset = 128;
#elif defined(__ARM_FEATURE_DOTPROD)
constexpr bool kByteProducts = true;
constexpr int kByteOffset = 0;
#else
constexpr bool kByteProducts = false;
constexpr int kByteOffset = 0;
#endif

// float16 by hand, for packing and for processors that do not convert: round to nearest even, subnormals kept.
static inline uint16_t to_half(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (bits >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (bits < 0x38800000u) {  // subnormal: let the addition round
    float magnitude;
    __builtin_memcpy(&magnitude, &bits, sizeof bits);
    magnitude += 0.5f;
    __builtin_memcpy(&bits, &magnitude, sizeof bits);
    return static_cast<uint16_t>(sign | (bits - 0x3f000000u));
  }
  bits += 0xfffu + (bits >> 13 & 1u);
  return static_cast<uint16_t>(sign | ((bits - 0x38000000u) >> 13));
}

static inline float from_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, rest = half & 0x7fffu;
  if (rest < 0x400u) {  // zero and subnormals
    const float magnitude = static_cast<float>(rest) * 5.9604644775390625e-8f;
    return sign ? -magnitude : magnitude;
  }
  const uint32_t bits = sign | (rest >= 0x7c00u ? rest << 13 | 0x7f800000u : (rest << 13) + 0x38000000u);
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

// Which of the matrix's rows is packed as the `row`th, −1 for padding: in their order, or a vector of each gate's in turn.
static int source_row(int row, int rows, int gate_rows) {
  if (!gate_rows) return row < rows ? row : -1;
  const int vector = row / kLanes, unit = vector / kGatesTogether * kLanes + row % kLanes;
  return unit < gate_rows ? vector % kGatesTogether * gate_rows + unit : -1;
}

// k's of a row that stand side by side in a panel, since one instruction takes them together.
static int group_of(const PackedMatrix& matrix) {
  if (matrix.kind == WeightKind::int8) return matrix.byte_inputs ? 4 : 2;
  return matrix.kind == WeightKind::int16 ? 2 : 1;
}

static size_t panel_bytes(const PackedMatrix& matrix) {
  const size_t size = matrix.kind == WeightKind::fp32 ? 4 : matrix.kind == WeightKind::int8 ? 1 : 2;
  return size * kPanel * round_up(matrix.depth, group_of(matrix));
}

template <class T>
static const T* panel_of(const PackedMatrix& matrix, int panel) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(matrix.panels) + panel * panel_bytes(matrix));
}

// Rounds a row to whole numbers with one scale for all of it.
static float round_row(const float* row, int depth, int top, int32_t* whole) {
  float largest = 0;
  for (int k = 0; k < depth; ++k) largest = __builtin_fmaxf(largest, __builtin_fabsf(row[k]));
  const float scale = largest / static_cast<float>(top);
  for (int k = 0; k < depth; ++k) whole[k] = scale > 0 ? static_cast<int32_t>(__builtin_rintf(row[k] / scale)) : 0;
  return scale;
}

static PackedMatrix pack_matrix(const float* matrix, int rows, int depth, WeightKind kind, int gate_rows) {
  PackedMatrix packed{rows, depth, kind};
  packed.gate_rows = gate_rows;
  packed.byte_inputs = kind == WeightKind::int8 && kByteProducts;
  const bool whole_numbers = kind == WeightKind::int8 || kind == WeightKind::int16;
  packed.panel_count = gate_rows ? ceil_div(gate_rows, kLanes) : ceil_div(rows, kPanel);
  const int padded = packed.panel_count * kPanel, group = group_of(packed), packed_depth = round_up(depth, group);
  packed.panels = allocate_scratch(packed.panel_count * panel_bytes(packed) / sizeof(float) + 16);
  if (whole_numbers) {
    packed.scales = allocate_scratch(padded);
    packed.row_totals = allocate_scratch(padded);
  }
  float* nothing = allocate_scratch(depth);
  auto* whole = reinterpret_cast<int32_t*>(allocate_scratch(packed_depth));
  for (int k = 0; k < depth; ++k) nothing[k] = 0;
  for (int k = 0; k < packed_depth; ++k) whole[k] = 0;
  for (int row = 0; row < padded; ++row) {
    const int source = source_row(row, rows, gate_rows), column = row % kPanel;
    const float* from = source < 0 ? nothing : matrix + static_cast<size_t>(source) * depth;
    char* panel = reinterpret_cast<char*>(packed.panels) + row / kPanel * panel_bytes(packed);
    const auto place = [&](int k) { return (static_cast<size_t>(k / group) * kPanel + column) * group + k % group; };
    for (int k = 0; kind == WeightKind::fp32 && k < depth; ++k) reinterpret_cast<float*>(panel)[place(k)] = from[k];
    for (int k = 0; kind == WeightKind::fp16 && k < depth; ++k)
      reinterpret_cast<uint16_t*>(panel)[place(k)] = to_half(from[k]);
    if (!whole_numbers) continue;
    packed.scales[row] = round_row(from, depth, kind == WeightKind::int8 ? kTop8 : kTop16, whole);
    int64_t total = 0;
    for (int k = 0; k < packed_depth; ++k) {
      total += whole[k];
      if (kind == WeightKind::int8) reinterpret_cast<int8_t*>(panel)[place(k)] = static_cast<int8_t>(whole[k]);
      else reinterpret_cast<int16_t*>(panel)[place(k)] = static_cast<int16_t>(whole[k]);
    }
    packed.row_totals[row] = static_cast<float>(total);
  }
  free_scratch(reinterpret_cast<float*>(whole));
  free_scratch(nothing);
  return packed;
}

static void free_matrix(PackedMatrix& matrix) {
  for (float* part : {matrix.panels, matrix.scales, matrix.row_totals})
    if (part) free_scratch(part);
  matrix = {};
}

}  // namespace unrolled::UNROLLED_NAMESPACE
