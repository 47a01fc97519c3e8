// Products of packed weights with the inputs of a step: a panel of rows at a time.
#pragma once

#include "runtime/product.h"
#include "step/pack.h"


namespace unrolled::UNROLLED_NAMESPACE {

static inline Vec load_half(const uint16_t* from) {
#if defined(__AVX512F__)
  return (Vec)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__F16C__)
  return (Vec)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#elif defined(__aarch64__)
  return (Vec)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
#else
  Vec v;
  for (int lane = 0; lane < kLanes; ++lane) v[lane] = from_half(from[lane]);
  return v;
#endif
}

// Two or four small numbers as one, to multiply with each row's.
template <class T>
static inline int32_t together(const T* from) {
  int32_t bits;
  __builtin_memcpy(&bits, from, sizeof bits);
  return bits;
}

// sums[v] = Σ_k x[k]·panel[k][v]
static inline void half_panel(const uint16_t* panel, int depth, const float* x, Vec (&sums)[kPlainVecs]) {
  Vec odd[kPlainVecs] = {};
  for (Vec& one : sums) one = Vec{};
  int k = 0;
  for (; k + 2 <= depth; k += 2, panel += 2 * kPanel)
#pragma GCC unroll 8
    for (int v = 0; v < kPlainVecs; ++v) {
      sums[v] += x[k] * load_half(panel + v * kLanes);
      odd[v] += x[k + 1] * load_half(panel + kPanel + v * kLanes);
    }
  for (int v = 0; v < kPlainVecs; ++v) {
    if (k < depth) sums[v] += x[k] * load_half(panel + v * kLanes);
    sums[v] += odd[v];
  }
}

#if defined(__AVX512F__)
// Inputs are bytes, 128 too large: the instruction takes them without a sign.
__attribute__((target("avx512vnni"))) static void byte_panel_vnni(const int8_t* panel, int groups, const uint8_t* x,
                                                                  IntVec (&sums)[kPlainVecs]) {
  __m512i even[kPlainVecs], odd[kPlainVecs];
  for (int v = 0; v < kPlainVecs; ++v) even[v] = odd[v] = _mm512_setzero_si512();
  int g = 0;
  for (; g + 2 <= groups; g += 2, panel += 8 * kPanel) {
    const __m512i first = _mm512_set1_epi32(together(x + 4 * g)), second = _mm512_set1_epi32(together(x + 4 * g + 4));
#pragma GCC unroll 8
    for (int v = 0; v < kPlainVecs; ++v) {
      even[v] = _mm512_dpbusd_epi32(even[v], first, _mm512_loadu_si512(panel + v * 64));
      odd[v] = _mm512_dpbusd_epi32(odd[v], second, _mm512_loadu_si512(panel + 4 * kPanel + v * 64));
    }
  }
  for (int v = 0; v < kPlainVecs; ++v) {
    if (g < groups)
      even[v] = _mm512_dpbusd_epi32(even[v], _mm512_set1_epi32(together(x + 4 * g)), _mm512_loadu_si512(panel + v * 64));
    sums[v] = (IntVec)_mm512_add_epi32(even[v], odd[v]);
  }
}

__attribute__((target("avx512vnni"))) static void word_panel_vnni(const int16_t* panel, int groups, const int16_t* x,
                                                                  Vec (&sums)[kPlainVecs]) {
  for (Vec& one : sums) one = Vec{};
  for (int g = 0; g < groups;) {
    __m512i run[kPlainVecs];
    for (auto& one : run) one = _mm512_setzero_si512();
    for (const int end = g + kRun / 2 < groups ? g + kRun / 2 : groups; g < end; ++g, panel += 2 * kPanel) {
      const __m512i inputs = _mm512_set1_epi32(together(x + 2 * g));
#pragma GCC unroll 8
      for (int v = 0; v < kPlainVecs; ++v)
        run[v] = _mm512_dpwssd_epi32(run[v], inputs, _mm512_loadu_si512(panel + v * 2 * kLanes));
    }
    for (int v = 0; v < kPlainVecs; ++v) sums[v] += (Vec)_mm512_cvtepi32_ps(run[v]);
  }
}
#elif defined(__ARM_FEATURE_DOTPROD)
static void byte_panel_dot(const int8_t* panel, int groups, const int8_t* x, IntVec (&sums)[kPlainVecs]) {
  int32x4_t even[kPlainVecs], odd[kPlainVecs];
  for (int v = 0; v < kPlainVecs; ++v) even[v] = odd[v] = vdupq_n_s32(0);
  int g = 0;
  for (; g + 2 <= groups; g += 2, panel += 8 * kPanel) {
    const int8x16_t first = vreinterpretq_s8_s32(vdupq_n_s32(together(x + 4 * g)));
    const int8x16_t second = vreinterpretq_s8_s32(vdupq_n_s32(together(x + 4 * g + 4)));
#pragma GCC unroll 8
    for (int v = 0; v < kPlainVecs; ++v) {
      even[v] = vdotq_s32(even[v], vld1q_s8(panel + v * 16), first);
      odd[v] = vdotq_s32(odd[v], vld1q_s8(panel + 4 * kPanel + v * 16), second);
    }
  }
  for (int v = 0; v < kPlainVecs; ++v) {
    if (g < groups) {
      const int8x16_t last = vreinterpretq_s8_s32(vdupq_n_s32(together(x + 4 * g)));
      even[v] = vdotq_s32(even[v], vld1q_s8(panel + v * 16), last);
    }
    sums[v] = (IntVec)vaddq_s32(even[v], odd[v]);
  }
}
#endif

// a[2i]·b[2i] + a[2i+1]·b[2i+1] for each lane i, of the weights of one vector of rows and a pair of inputs
static inline IntVec pairs(const int16_t* weights, int32_t inputs) {
#if defined(__AVX512F__)
  return (IntVec)_mm512_madd_epi16(_mm512_loadu_si512(weights), _mm512_set1_epi32(inputs));
#elif defined(__AVX2__)
  const __m256i loaded = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights));
  return (IntVec)_mm256_madd_epi16(loaded, _mm256_set1_epi32(inputs));
#elif defined(__aarch64__)
  const int16x8_t a = vld1q_s16(weights), b = vreinterpretq_s16_s32(vdupq_n_s32(inputs));
  return (IntVec)vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b));
#else
  int16_t input[2];
  __builtin_memcpy(input, &inputs, sizeof inputs);
  IntVec sums;
  for (int lane = 0; lane < kLanes; ++lane)
    sums[lane] = weights[2 * lane] * input[0] + weights[2 * lane + 1] * input[1];
  return sums;
#endif
}

static inline IntVec pairs(const int8_t* weights, int32_t inputs) {
#if defined(__AVX512F__)
  const __m512i wide = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights)));
  return (IntVec)_mm512_madd_epi16(wide, _mm512_set1_epi32(inputs));
#elif defined(__AVX2__)
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weights)));
  return (IntVec)_mm256_madd_epi16(wide, _mm256_set1_epi32(inputs));
#else
  int16_t wide[2 * kLanes];
  for (int i = 0; i < 2 * kLanes; ++i) wide[i] = weights[i];
  return pairs(wide, inputs);
#endif
}

// `RUN` pairs at most are added up as whole numbers before they go into the floats.
template <int RUN, class Weight>
static void pair_panel(const Weight* panel, int groups, const int16_t* x, Vec (&sums)[kPlainVecs]) {
  for (Vec& one : sums) one = Vec{};
  for (int g = 0; g < groups;) {
    IntVec run[kPlainVecs] = {};
    for (const int end = g + RUN < groups ? g + RUN : groups; g < end; ++g, panel += 2 * kPanel)
#pragma GCC unroll 8
      for (int v = 0; v < kPlainVecs; ++v) run[v] += pairs(panel + v * 2 * kLanes, together(x + 2 * g));
    for (int v = 0; v < kPlainVecs; ++v) sums[v] += __builtin_convertvector(run[v], Vec);
  }
}

typedef uint8_t ByteVec __attribute__((vector_size(kLanes)));
typedef int16_t WordVec __attribute__((vector_size(2 * kLanes)));

// Inputs as integers from −top to top, and the scale that restores them. A NaN makes the scale NaN.
// `to` has room for whole vectors; weights beyond the depth are zero.
static float quantize(const float* x, int depth, int top, bool bytes, void* to) {
  Vec largest = {}, nan = {};
  for (int k = 0; k < depth; k += kLanes) {
    const Vec v = load(x + k, depth - k), magnitude = v < Vec{} ? -v : v;
    largest = magnitude > largest ? magnitude : largest;
    nan += v - v;  // NaN for a NaN or an infinity
  }
  const float most = maximum(largest), high = static_cast<float>(top);
  const float scale = most / high + sum(nan), inverse = most > 0 ? high / most : 0.0f;
  const Vec shifter = splat(12582912.0f);  // adding it rounds to a whole number
  for (int k = 0; k < depth; k += kLanes) {
    const Vec rounded = (load(x + k, depth - k) * inverse + shifter) - shifter;
    const IntVec q = __builtin_convertvector(rounded, IntVec);
    if (bytes) {
      const auto small = __builtin_convertvector(q + kByteOffset, ByteVec);
      __builtin_memcpy(static_cast<uint8_t*>(to) + k, &small, sizeof small);
    } else {
      const auto small = __builtin_convertvector(q, WordVec);
      __builtin_memcpy(static_cast<int16_t*>(to) + k, &small, sizeof small);
    }
  }
  return scale;
}

// One operand of a layer's products: rows (batch, depth), with room for their integers.
struct Operand {
  const float* rows;
  int64_t stride;
  float* quantized;  // (batch, row_room(depth))
  float* scales;     // (batch,)
  static size_t row_room(int depth) { return depth / 2 + 2 * kLanes; }
  void* whole(int depth, int b) const { return quantized + b * row_room(depth); }
};

static void prepare_operand(const PackedMatrix& matrix, const Operand& x, int batch) {
  if (matrix.kind != WeightKind::int8 && matrix.kind != WeightKind::int16) return;
  const int top = matrix.kind == WeightKind::int8 ? kTop8 : kTop16;
  for (int b = 0; b < batch; ++b)
    x.scales[b] = quantize(x.rows + b * x.stride, matrix.depth, top, matrix.byte_inputs, x.whole(matrix.depth, b));
}

// sums[v] = Σ_k x[b][k]·matrix[·][k] of one panel's rows, of whole numbers, before the scales
static inline void whole_panel(const PackedMatrix& matrix, const void* x, int panel, Vec (&sums)[kPlainVecs]) {
  const int groups = ceil_div(matrix.depth, group_of(matrix));
  const auto* words = static_cast<const int16_t*>(x);
  constexpr int kLongRun = INT32_MAX / (2 * kTop8 * kTop8);
#if defined(__AVX512F__)
  if (matrix.byte_inputs) {
    IntVec whole[kPlainVecs];
    byte_panel_vnni(panel_of<int8_t>(matrix, panel), groups, static_cast<const uint8_t*>(x), whole);
    for (int v = 0; v < kPlainVecs; ++v)
      sums[v] = __builtin_convertvector(whole[v], Vec) - float{kByteOffset} * load(matrix.row_totals + panel * kPanel + v * kLanes);
    return;
  }
  if (matrix.kind == WeightKind::int16 && kByteProducts)
    return word_panel_vnni(panel_of<int16_t>(matrix, panel), groups, words, sums);
#elif defined(__ARM_FEATURE_DOTPROD)
  if (matrix.byte_inputs) {
    IntVec whole[kPlainVecs];
    byte_panel_dot(panel_of<int8_t>(matrix, panel), groups, static_cast<const int8_t*>(x), whole);
    for (int v = 0; v < kPlainVecs; ++v) sums[v] = __builtin_convertvector(whole[v], Vec);
    return;
  }
#endif
  if (matrix.kind == WeightKind::int16) pair_panel<kRun / 2>(panel_of<int16_t>(matrix, panel), groups, words, sums);
  else pair_panel<kLongRun>(panel_of<int8_t>(matrix, panel), groups, words, sums);
}

// tile[b][·] (+)= matrix · x[begin + b] for one panel of rows and a few sequences
static void panel_sums(const PackedMatrix& matrix, const Operand& x, Range some, int panel, bool add, float* tile) {
  if (matrix.kind == WeightKind::fp32) {
    const auto one = add ? product<kPlainVecs, true> : product<kPlainVecs, false>;
    return one(x.rows + some.begin * x.stride, x.stride, some.end - some.begin, panel_of<float>(matrix, panel),
               matrix.depth, tile);
  }
  for (int b = some.begin; b < some.end; ++b, tile += kPanel) {
    Vec sums[kPlainVecs];
    if (matrix.kind == WeightKind::fp16) {
      half_panel(panel_of<uint16_t>(matrix, panel), matrix.depth, x.rows + b * x.stride, sums);
    } else {
      whole_panel(matrix, x.whole(matrix.depth, b), panel, sums);
      for (int v = 0; v < kPlainVecs; ++v) sums[v] *= x.scales[b] * load(matrix.scales + panel * kPanel + v * kLanes);
    }
    for (int v = 0; v < kPlainVecs; ++v) {
      float* to = tile + v * kLanes;
      store(to, add ? load(to) + sums[v] : sums[v]);
    }
  }
}

}  // namespace unrolled::UNROLLED_NAMESPACE
