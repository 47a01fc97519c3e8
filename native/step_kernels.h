// The single step of one instruction set: packed matrix times vector, then the cell.
#pragma once

#include "norm.h"
#include "scan.h"
#include "step.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace unrolled::UNROLLED_NAMESPACE {

// Bytes ahead that weights are fetched: they stream through once, from the second-level cache at best.
constexpr int kAhead = 2048;

// Rows of a panel: four vectors.
constexpr int kPanel = kPlainWidth;

#if defined(__AVX512F__)
constexpr bool kMayOffset = true;  // has an instruction for unsigned × signed bytes, if the processor does
static bool has_vnni() { return __builtin_cpu_supports("avx512vnni"); }
#else
constexpr bool kMayOffset = false;
static bool has_vnni() { return false; }
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

static inline Vec load_half(const uint16_t* from) {
#if defined(__AVX512F__)
  return (Vec)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__F16C__)
  return (Vec)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
  Vec v;
  for (int lane = 0; lane < kLanes; ++lane) v[lane] = from_half(from[lane]);
  return v;
#endif
}

// int8 panels hold `kGroup` k's of a row side by side: four where inputs are offset, else two.
static PackedMatrix pack_matrix(const float* matrix, int rows, int depth, WeightKind kind) {
  PackedMatrix packed{rows, depth, kind};
  packed.offset_inputs = kind == WeightKind::int8 && kMayOffset && has_vnni();
  const int panels = ceil_div(rows, kPanel), padded = panels * kPanel;
  const int group = packed.offset_inputs ? 4 : 2;
  const size_t bytes = static_cast<size_t>(padded) *
                       (kind == WeightKind::fp32 ? 4 * depth : kind == WeightKind::fp16 ? 2 * depth : round_up(depth, 4));
  packed.panels = allocate_scratch((bytes + 3) / 4 + 16);
  const auto at = [&](int row, int k) { return row < rows && k < depth ? matrix[static_cast<size_t>(row) * depth + k] : 0; };
  if (kind == WeightKind::int8) {
    packed.scales = allocate_scratch(padded);
    packed.row_totals = allocate_scratch(padded);
  }
  for (int row = 0; row < padded; ++row) {
    const size_t panel = row / kPanel, column = row % kPanel;
    if (kind == WeightKind::fp32)
      for (int k = 0; k < depth; ++k) packed.panels[(panel * depth + k) * kPanel + column] = at(row, k);
    if (kind == WeightKind::fp16) {
      auto* halves = reinterpret_cast<uint16_t*>(packed.panels);
      for (int k = 0; k < depth; ++k) halves[(panel * depth + k) * kPanel + column] = to_half(at(row, k));
    }
    if (kind == WeightKind::int8) {
      auto* bytes_at = reinterpret_cast<int8_t*>(packed.panels) + panel * round_up(depth, 4) * kPanel;
      float largest = 0;
      for (int k = 0; k < depth; ++k) largest = __builtin_fmaxf(largest, __builtin_fabsf(at(row, k)));
      const float scale = largest / 127.0f;
      int total = 0;
      for (int k = 0; k < round_up(depth, 4); ++k) {
        const int q = scale > 0 ? static_cast<int>(__builtin_rintf(at(row, k) / scale)) : 0;
        bytes_at[(k / group * kPanel + column) * group + k % group] = static_cast<int8_t>(q);
        total += q;
      }
      packed.scales[row] = scale;
      packed.row_totals[row] = static_cast<float>(total);
    }
  }
  return packed;
}

static void free_matrix(PackedMatrix& matrix) {
  for (float* part : {matrix.panels, matrix.scales, matrix.row_totals})
    if (part) free_scratch(part);
  matrix = {};
}

static inline void half_panel(const uint16_t* panel, int depth, const float* x, float* out) {
  Vec sums[2][kPlainVecs] = {};
  int k = 0;
  for (; k + 2 <= depth; k += 2, panel += 2 * kPanel)
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd)
#pragma GCC unroll 8
      for (int v = 0; v < kPlainVecs; ++v) {
        if (v % 2 == 0) __builtin_prefetch(panel + odd * kPanel + v * kLanes + kAhead / 2);
        sums[odd][v] += x[k + odd] * load_half(panel + odd * kPanel + v * kLanes);
      }
  for (int v = 0; v < kPlainVecs; ++v) {
    if (k < depth) sums[0][v] += x[k] * load_half(panel + v * kLanes);
    store(out + v * kLanes, sums[0][v] + sums[1][v]);
  }
}

// Σ_k q[r][k]·x[k] of a panel's rows in whole numbers; `x` holds bytes, 4 at a time and offset, or 16-bit pairs.
#if defined(__AVX512F__)
__attribute__((target("avx512vnni"))) static void byte_panel_offset(const int8_t* panel, int groups, const uint8_t* x,
                                                                    int32_t* out) {
  __m512i sums[2][kPlainVecs];
  for (auto& half : sums)
    for (auto& one : half) one = _mm512_setzero_si512();
  int g = 0;
  for (; g + 2 <= groups; g += 2)
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {
      int32_t four;
      __builtin_memcpy(&four, x + 4 * (g + odd), 4);
      const __m512i inputs = _mm512_set1_epi32(four);
#pragma GCC unroll 4
      for (int v = 0; v < kPlainVecs; ++v)
        __builtin_prefetch(panel + (static_cast<size_t>(g + odd) * kPanel + v * kLanes) * 4 + kAhead);
#pragma GCC unroll 4
      for (int v = 0; v < kPlainVecs; ++v)
        sums[odd][v] = _mm512_dpbusd_epi32(
            sums[odd][v], inputs, _mm512_loadu_si512(panel + (static_cast<size_t>(g + odd) * kPanel + v * kLanes) * 4));
    }
  if (g < groups) {
    int32_t four;
    __builtin_memcpy(&four, x + 4 * g, 4);
    for (int v = 0; v < kPlainVecs; ++v)
      sums[0][v] = _mm512_dpbusd_epi32(sums[0][v], _mm512_set1_epi32(four),
                                       _mm512_loadu_si512(panel + (static_cast<size_t>(g) * kPanel + v * kLanes) * 4));
  }
  for (int v = 0; v < kPlainVecs; ++v)
    _mm512_storeu_si512(out + v * kLanes, _mm512_add_epi32(sums[0][v], sums[1][v]));
}
#endif

static void byte_panel(const int8_t* panel, int groups, const int16_t* x, int32_t* out) {
#if defined(__AVX512F__)
  __m512i sums[kPlainVecs];
  for (auto& one : sums) one = _mm512_setzero_si512();
  for (int g = 0; g < groups; ++g) {
    int32_t pair;
    __builtin_memcpy(&pair, x + 2 * g, 4);
    for (int v = 0; v < kPlainVecs; ++v) {
      const auto* from = reinterpret_cast<const __m256i*>(panel + (static_cast<size_t>(g) * kPanel + v * kLanes) * 2);
      const __m512i weights = _mm512_cvtepi8_epi16(_mm256_loadu_si256(from));
      sums[v] = _mm512_add_epi32(sums[v], _mm512_madd_epi16(weights, _mm512_set1_epi32(pair)));
    }
  }
  for (int v = 0; v < kPlainVecs; ++v) _mm512_storeu_si512(out + v * kLanes, sums[v]);
#elif defined(__AVX2__)
  __m256i sums[kPlainVecs];
  for (auto& one : sums) one = _mm256_setzero_si256();
  for (int g = 0; g < groups; ++g) {
    int32_t pair;
    __builtin_memcpy(&pair, x + 2 * g, 4);
    for (int v = 0; v < kPlainVecs; ++v) {
      const auto* from = reinterpret_cast<const __m128i*>(panel + (static_cast<size_t>(g) * kPanel + v * kLanes) * 2);
      const __m256i weights = _mm256_cvtepi8_epi16(_mm_loadu_si128(from));
      sums[v] = _mm256_add_epi32(sums[v], _mm256_madd_epi16(weights, _mm256_set1_epi32(pair)));
    }
  }
  for (int v = 0; v < kPlainVecs; ++v)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + v * kLanes), sums[v]);
#else
  for (int row = 0; row < kPanel; ++row) out[row] = 0;
  for (int g = 0; g < groups; ++g)
    for (int row = 0; row < kPanel; ++row) {
      const int8_t* pair = panel + (static_cast<size_t>(g) * kPanel + row) * 2;
      out[row] += pair[0] * x[2 * g] + pair[1] * x[2 * g + 1];
    }
#endif
}

typedef uint8_t ByteVec __attribute__((vector_size(kLanes)));
typedef int16_t WordVec __attribute__((vector_size(2 * kLanes)));

// Inputs as whole numbers from −127 to 127 and the scale that makes them what they were. A NaN makes the scale NaN.
static float quantize(const float* x, int depth, bool offset, void* to) {
  Vec largest = {}, nan = {};
  for (int k = 0; k < depth; k += kLanes) {
    const Vec v = load(x + k, depth - k), magnitude = v < Vec{} ? -v : v;
    largest = magnitude > largest ? magnitude : largest;
    nan += v - v;  // NaN for a NaN or an infinity
  }
  float top = 0;
  for (int lane = 0; lane < kLanes; ++lane) top = largest[lane] > top ? largest[lane] : top;
  const float scale = top / 127.0f + sum(nan), inverse = top > 0 ? 127.0f / top : 0.0f;
  auto* bytes = static_cast<uint8_t*>(to);
  auto* words = static_cast<int16_t*>(to);
  const Vec shifter = splat(12582912.0f);  // adding it rounds to a whole number
  for (int k = 0; k < round_up(depth, 4); k += kLanes) {
    const Vec rounded = k < depth ? (load(x + k, depth - k) * inverse + shifter) - shifter : Vec{};
    const IntVec q = __builtin_convertvector(rounded, IntVec);
    const int count = round_up(depth, 4) - k < kLanes ? round_up(depth, 4) - k : kLanes;
    if (offset) {
      const auto small = __builtin_convertvector(q + 128, ByteVec);
      __builtin_memcpy(bytes + k, &small, count);
    } else {
      const auto small = __builtin_convertvector(q, WordVec);
      __builtin_memcpy(words + k, &small, 2 * count);
    }
  }
  return scale;
}

// One operand of a layer's products: rows (batch, depth), with room for what int8 makes of them.
struct Operand {
  const float* rows;
  int64_t stride;
  float* quantized;  // (batch, depth / 2 + 16) floats of room
  float* scales;     // (batch,)
  static size_t room(int depth, int batch) { return static_cast<size_t>(batch) * (depth / 2 + 18); }
  float* quantized_row(int depth, int b) const { return quantized + static_cast<size_t>(b) * (depth / 2 + 17); }
};

static void prepare_operand(const PackedMatrix& matrix, const Operand& x, int batch) {
  if (matrix.kind != WeightKind::int8) return;
  for (int b = 0; b < batch; ++b)
    x.scales[b] = quantize(x.rows + b * x.stride, matrix.depth, matrix.offset_inputs, x.quantized_row(matrix.depth, b));
}

// out[b][·] (+)= matrix · x[b] for one panel of rows; out is (batch, out_stride) in natural order.
static void multiply_panel(const PackedMatrix& matrix, const Operand& x, int batch, int panel, float* out, int out_stride,
                           bool add) {
  const int first = panel * kPanel, depth = matrix.depth;
  alignas(64) float tile[8 * kPanel];
  for (int begin = 0; begin < batch; begin += 8) {
    const int rows = batch - begin < 8 ? batch - begin : 8;
    for (int b = begin; matrix.kind != WeightKind::fp32 && b < begin + rows; ++b) {
      float* sums = tile + (b - begin) * kPanel;
      if (matrix.kind == WeightKind::fp16) {
        const auto* halves = reinterpret_cast<const uint16_t*>(matrix.panels);
        half_panel(halves + static_cast<size_t>(first) * depth, depth, x.rows + b * x.stride, sums);
        continue;
      }
      const auto* bytes = reinterpret_cast<const int8_t*>(matrix.panels) + static_cast<size_t>(first) * round_up(depth, 4);
      alignas(64) int32_t whole[kPanel];
      const float* input = x.quantized_row(depth, b);
      const float offset = matrix.offset_inputs ? 128.0f : 0.0f;
#if defined(__AVX512F__)
      if (matrix.offset_inputs)
        byte_panel_offset(bytes, round_up(depth, 4) / 4, reinterpret_cast<const uint8_t*>(input), whole);
      else
#endif
        byte_panel(bytes, round_up(depth, 4) / 2, reinterpret_cast<const int16_t*>(input), whole);
      for (int v = 0; v < kPanel; v += kLanes) {
        IntVec q;
        __builtin_memcpy(&q, whole + v, sizeof q);
        const Vec total = __builtin_convertvector(q, Vec) - offset * load(matrix.row_totals + first + v);
        store(sums + v, total * (x.scales[b] * load(matrix.scales + first + v)));
      }
    }
    if (matrix.kind == WeightKind::fp32)
      product<kPlainVecs>(x.rows + begin * x.stride, x.stride, rows, matrix.panels + static_cast<size_t>(first) * depth,
                          depth, tile);
    for (int b = 0; b < rows; ++b)
      for (int v = 0; v < kPanel && first + v < matrix.rows; v += kLanes) {
        float* to = out + static_cast<size_t>(begin + b) * out_stride + first + v;
        const int count = matrix.rows - first - v;
        const Vec before = add ? load(to, count) : Vec{};
        store(to, before + load(tile + b * kPanel + v), count);
      }
  }
}

// Runs part(panel) for all panels, on several threads where that pays.
template <class Part>
static void over_panels(int panels, int threads, Part part) {
  struct Work {
    Part& part;
    int panels;
  } work{part, panels};
  parallel(
      threads < panels ? threads : panels,
      [](void* data, int id, int count) {
        const Work& w = *static_cast<Work*>(data);
        const Range mine = part_of(w.panels, id, count);
        for (int panel = mine.begin; panel < mine.end; ++panel) w.part(panel);
      },
      &work);
}

// The step of one layer for a few sequences.
class Step {
 public:
  Step(const StepLayer& layer, const StepRows& rows, float* scratch, int threads)
      : layer_(layer), rows_(rows), threads_(threads), hidden_(layer.hidden) {
    Arena arena(scratch);
    lay_out(arena);
  }

  static size_t scratch_size(const StepLayer& layer, int batch) {
    StepRows rows;
    rows.batch = batch;
    Step step(layer, rows, nullptr, 1);
    Arena arena(nullptr);
    step.lay_out(arena);
    return arena.used();
  }

  void run() {
    const bool before = is(CellKind::gru_reset_before);
    const bool one_buffer = of_x_ == of_h_;
    const Operand x{rows_.x, rows_.x_stride, room_x_, scales_};
    const Operand h{rows_.h, rows_.h_stride, room_h_, scales_ + rows_.batch};
    prepare_operand(layer_.w, x, rows_.batch);
    prepare_operand(layer_.u, h, rows_.batch);
    const int panels_w = ceil_div(layer_.w.rows, kPanel), panels_u = ceil_div(layer_.u.rows, kPanel);
    over_panels(panels_w, threads_, [&](int panel) {
      multiply_panel(layer_.w, x, rows_.batch, panel, of_x_, wide_, false);
      if (panel < panels_u && one_buffer) multiply_panel(layer_.u, h, rows_.batch, panel, of_h_, wide_, true);
      if (panel < panels_u && !one_buffer) multiply_panel(layer_.u, h, rows_.batch, panel, of_h_, wide_, false);
    });
    if (layer_.norm_ih) norm(of_x_, layer_.norm_ih, 0, wide_);
    if (layer_.norm_hh) norm(of_h_, layer_.norm_hh, 0, before ? 2 * hidden_ : wide_);
    if (before) candidate_of_reset(h);
    for (int b = 0; b < rows_.batch; ++b) {
      if (is(CellKind::lstm)) lstm(b);
      else if (is(CellKind::gru_reset_after) || before) gru(b, before);
      else rnn(b);
    }
    if (layer_.r.rows) project();
  }

 private:
  bool is(CellKind kind) const { return layer_.kind == static_cast<int>(kind); }

  void lay_out(Arena& arena) {
    const int batch = rows_.batch;
    wide_ = layer_.w.rows;
    const bool apart = layer_.norm_ih || layer_.norm_hh || is(CellKind::gru_reset_after) || is(CellKind::gru_reset_before);
    of_x_ = arena.take(static_cast<size_t>(batch) * wide_ + kLanes);
    of_h_ = apart ? arena.take(static_cast<size_t>(batch) * wide_ + kLanes) : of_x_;
    room_x_ = arena.take(Operand::room(layer_.features, batch));
    room_h_ = arena.take(Operand::room(hidden_ > layer_.width ? hidden_ : layer_.width, batch));
    scales_ = arena.take(2 * batch);
    shown_ = arena.take(static_cast<size_t>(batch) * hidden_ + kLanes);
    memory_ = arena.take(hidden_ + kLanes);
  }

  void norm(float* sums, const float* gain, int first, int size) {
    for (int b = 0; b < rows_.batch; ++b) {
      float* row = sums + static_cast<size_t>(b) * wide_ + first;
      normalize(row, size, norm_stats(row, size), gain + first, nullptr, row);
    }
  }

  // W x + b_ih + U h + b_hh of one gate
  Vec total(int b, int gate, int unit, int count) const {
    const size_t at = static_cast<size_t>(b) * wide_ + gate * hidden_ + unit;
    Vec v = load(of_x_ + at, count);
    if (of_h_ != of_x_) v += load(of_h_ + at, count);
    return v + bias(layer_.bias_ih, gate, unit, count) + bias(layer_.bias_hh, gate, unit, count);
  }
  Vec bias(const float* from, int gate, int unit, int count) const {
    return from ? load(from + gate * hidden_ + unit, count) : Vec{};
  }
  static Vec mixed(float keep, Vec old, Vec fresh) { return keep == 0 ? fresh : keep * old + (1.0f - keep) * fresh; }

  const float* h(int b) const { return rows_.h + b * rows_.h_stride; }
  float* new_h(int b) const { return rows_.new_h + b * rows_.h_stride; }

  void rnn(int b) {
    for (int unit = 0; unit < hidden_; unit += kLanes) {
      const int count = hidden_ - unit;
      const Vec a = total(b, 0, unit, count);
      const Vec fresh = is(CellKind::rnn_relu) ? relu(a) : tanh(a);
      store(new_h(b) + unit, mixed(layer_.keep_h, load(h(b) + unit, count), fresh), count);
    }
  }

  void lstm(int b) {
    float* new_c = rows_.new_c + b * rows_.c_stride;
    const float* old_c = rows_.c + b * rows_.c_stride;
    float* shown = shown_ + static_cast<size_t>(b) * hidden_;
    for (int unit = 0; unit < hidden_; unit += kLanes) {
      const int count = hidden_ - unit;
      const Vec old = load(old_c + unit, count);
      Vec a[4], peep[3] = {};
      for (int gate = 0; gate < 4; ++gate) a[gate] = total(b, gate, unit, count);
      for (int gate = 0; layer_.peephole && gate < 3; ++gate) peep[gate] = load(layer_.peephole + gate * hidden_ + unit, count);
      if (layer_.peephole) a[0] += peep[0] * old, a[1] += peep[1] * old;
      const Vec c = sigmoid(a[1]) * old + sigmoid(a[0]) * tanh(a[2]);
      if (layer_.peephole) a[3] += peep[2] * (layer_.peephole_previous ? old : c);
      const Vec o = sigmoid(a[3]);
      store(new_c + unit, mixed(layer_.keep_c, old, c), count);
      if (layer_.norm_c) store(memory_ + unit, c, count);
      store(shown + unit, layer_.norm_c ? o : o * tanh(c), count);
    }
    if (layer_.norm_c) {
      normalize(memory_, hidden_, norm_stats(memory_, hidden_), layer_.norm_c, layer_.norm_c_bias, memory_);
      for (int unit = 0; unit < hidden_; unit += kLanes) {
        const int count = hidden_ - unit;
        store(shown + unit, load(shown + unit, count) * tanh(load(memory_ + unit, count)), count);
      }
    }
    for (int unit = 0; !layer_.r.rows && unit < hidden_; unit += kLanes) {
      const int count = hidden_ - unit;
      store(new_h(b) + unit, mixed(layer_.keep_h, load(h(b) + unit, count), load(shown + unit, count)), count);
    }
  }

  void project() {
    const Operand shown{shown_, hidden_, room_h_, scales_};
    prepare_operand(layer_.r, shown, rows_.batch);
    for (int panel = 0; panel < ceil_div(layer_.width, kPanel); ++panel)
      multiply_panel(layer_.r, shown, rows_.batch, panel, of_x_, wide_, false);
    for (int b = 0; b < rows_.batch; ++b)
      for (int unit = 0; unit < layer_.width; unit += kLanes) {
        const int count = layer_.width - unit;
        const Vec fresh = load(of_x_ + static_cast<size_t>(b) * wide_ + unit, count);
        store(new_h(b) + unit, mixed(layer_.keep_h, load(h(b) + unit, count), fresh), count);
      }
  }

  // Reset before: r first, then U_n (r∘h) into n's place among the sums of h.
  void candidate_of_reset(const Operand& h_operand) {
    for (int b = 0; b < rows_.batch; ++b)
      for (int unit = 0; unit < hidden_; unit += kLanes) {
        const int count = hidden_ - unit;
        const Vec r = sigmoid(total(b, 0, unit, count));
        store(shown_ + static_cast<size_t>(b) * hidden_ + unit, r * load(h(b) + unit, count), count);
      }
    const Operand reset{shown_, hidden_, h_operand.quantized, h_operand.scales};
    prepare_operand(layer_.u_n, reset, rows_.batch);
    float* of_n = of_h_ + 2 * hidden_;
    over_panels(ceil_div(hidden_, kPanel), threads_, [&](int panel) {
      multiply_panel(layer_.u_n, reset, rows_.batch, panel, of_n, wide_, false);
    });
    if (layer_.norm_hh) norm(of_h_, layer_.norm_hh, 2 * hidden_, hidden_);
  }

  void gru(int b, bool before) {
    for (int unit = 0; unit < hidden_; unit += kLanes) {
      const int count = hidden_ - unit;
      const size_t n_at = static_cast<size_t>(b) * wide_ + 2 * hidden_ + unit;
      const Vec r = sigmoid(total(b, 0, unit, count)), z = sigmoid(total(b, 1, unit, count));
      const Vec n_x = load(of_x_ + n_at, count) + bias(layer_.bias_ih, 2, unit, count);
      const Vec n_h = load(of_h_ + n_at, count) + bias(layer_.bias_hh, 2, unit, count);
      const Vec n = tanh(before ? n_x + n_h : n_x + r * n_h);
      const Vec old = load(h(b) + unit, count);
      store(new_h(b) + unit, mixed(layer_.keep_h, old, (1.0f - z) * n + z * old), count);
    }
  }

  const StepLayer& layer_;
  const StepRows& rows_;
  const int threads_, hidden_;
  int wide_ = 0;
  float *of_x_ = nullptr, *of_h_ = nullptr, *room_x_ = nullptr, *room_h_ = nullptr, *scales_ = nullptr;
  float *shown_ = nullptr, *memory_ = nullptr;
};

static void step_layer(const StepLayer& layer, const StepRows& rows, float* scratch, int threads) {
  Step(layer, rows, scratch, threads).run();
}

static unsigned long step_scratch(const StepLayer& layer, int batch) { return Step::scratch_size(layer, batch); }

}  // namespace unrolled::UNROLLED_NAMESPACE
