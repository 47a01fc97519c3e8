// The CTC loss of one instruction set: the forward and the backward algorithm over the 2L + 1 states of a target.
//
// With labels l_1 … l_L, p_t(k) the probability of k at frame t, and a blank before, between and after the labels
// (Graves et al. 2006, equations 6 to 15):
//
//     α_t(label j) = p_t(l_j) · (α_t-1(label j) + α_t-1(blank j) + [l_j ≠ l_j-1] α_t-1(label j-1))
//     α_t(blank j) = p_t(−) · (α_t-1(blank j) + α_t-1(label j-1))
//
// β_t is the same from the end, and ∂L/∂log p_t(k) = −Σ over states of k of α_t β_t / p(target).
//
// A probability over a thousand frames underflows any floating-point number, and logarithms cost an exponential for each
// term. Here each number is a mantissa in [1, 2) and a whole exponent of its own: sums and products are a dozen cheap
// instructions, the range has no end, and the relative error is that of float32 products.
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "ctc/ctc.h"
#include "runtime/kernels.h"
#include "runtime/math.h"
#include "runtime/parallel.h"

namespace unrolled::UNROLLED_NAMESPACE {

constexpr int kNothing = -(1 << 28);    // the exponent of zero
constexpr float kLeastLog = -1e6f;      // log-probabilities below are zero probability
constexpr float kMostLog = 1e6f;        // above, they are no numbers to work with

struct Scaled {
  Vec mantissa;
  IntVec exponent;
};

// Mantissas and exponents of a row of states.
struct Row {
  float* mantissa;
  int32_t* exponent;
};

[[gnu::always_inline]] static inline IntVec load_int(const int32_t* from) {
  IntVec v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
[[gnu::always_inline]] static inline IntVec splat_int(int32_t x) { return x - IntVec{}; }
[[gnu::always_inline]] static inline IntVec higher(IntVec a, IntVec b) { return a > b ? a : b; }

[[gnu::always_inline]] static inline Scaled load(const Row& row, int64_t j) {
  return {load(row.mantissa + j), load_int(row.exponent + j)};
}
[[gnu::always_inline]] static inline void store(const Row& row, int64_t j, const Scaled& v) {
  store(row.mantissa + j, v.mantissa);
  __builtin_memcpy(row.exponent + j, &v.exponent, sizeof v.exponent);
}

static inline void set(const Row& row, int64_t j, float mantissa, int32_t exponent) {
  row.mantissa[j] = mantissa;
  row.exponent[j] = exponent;
}

// 2^n; zero below 2^-126.
[[gnu::always_inline]] static inline Vec power_of_two(IntVec n) {
  const IntVec bits = (higher(n, splat_int(-127)) + 127) << 23;
  Vec power;
  __builtin_memcpy(&power, &bits, sizeof power);
  return power;
}

// Takes the power of two out of a positive mantissa.
[[gnu::always_inline]] static inline Scaled normal(Vec mantissa, IntVec exponent) {
  IntVec bits;
  __builtin_memcpy(&bits, &mantissa, sizeof bits);
  exponent = higher(exponent + (bits >> 23) - 127, splat_int(kNothing));
  bits = (bits & 0x7fffff) | 0x3f800000;
  __builtin_memcpy(&mantissa, &bits, sizeof mantissa);
  return {mantissa, exponent};
}

[[gnu::always_inline]] static inline Scaled sum(const Scaled& a, const Scaled& b) {
  const IntVec top = higher(a.exponent, b.exponent);
  return {a.mantissa * power_of_two(a.exponent - top) + b.mantissa * power_of_two(b.exponent - top), top};
}

[[gnu::always_inline]] static inline Scaled sum(const Scaled& a, const Scaled& b, const Scaled& c) {
  const IntVec top = higher(higher(a.exponent, b.exponent), c.exponent);
  return {a.mantissa * power_of_two(a.exponent - top) + b.mantissa * power_of_two(b.exponent - top) +
              c.mantissa * power_of_two(c.exponent - top),
          top};
}

[[gnu::always_inline]] static inline Scaled product(const Scaled& a, const Scaled& b) {
  return normal(a.mantissa * b.mantissa, a.exponent + b.exponent);
}

// e^x = 2^n·e^r with |r| ≤ ln 2 / 2; the polynomial as in math.h.
[[gnu::always_inline]] static inline Scaled exponential(Vec x) {
  const IntVec zero = x < splat(kLeastLog);
  const Vec shifter = splat(12582912.0f);
  x = clamp(x, kLeastLog, kMostLog);
  const Vec n = x * 1.44269504088896341f + shifter - shifter;
  Vec r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  Vec p = splat(1.3814540579915047e-3f);
  p = p * r + 8.36874544620514e-3f;
  p = p * r + 4.166838899254799e-2f;
  p = p * r + 1.666652113199234e-1f;
  p = p * r + 4.999999403953552e-1f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  IntVec exponent = __builtin_convertvector(n, IntVec);
  exponent = zero ? splat_int(kNothing) : exponent;
  return {p, exponent};
}

[[gnu::always_inline]] static inline Vec gather(const float* from, const int32_t* index) {
#if defined(__AVX512F__)
  return _mm512_i32gather_ps(_mm512_loadu_si512(index), from, 4);
#elif defined(__AVX2__)
  return _mm256_i32gather_ps(from, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(index)), 4);
#else
  Vec v;
  for (int lane = 0; lane < kLanes; ++lane) v[lane] = from[index[lane]];
  return v;
#endif
}

// One sequence. States stand in two rows, blanks 0 … L and labels 0 … L - 1, in blocks of kLanes; every row has a block
// of padding on either side. At frame t only states that can be reached from the start and can still reach the end
// are looked at: from j = L - T + t to j = t.
class Lattice {
 public:
  Lattice(const Frames& frames, int blank, const int64_t* target, int64_t length)
      : frames_(frames), blank_(blank), target_(target), length_(length),
        blocks_(ceil_div(static_cast<int>(length) + 1, kLanes)), width_((blocks_ + 2) * kLanes) {}

  bool numbers() const {
    IntVec bad = {};
    for (int64_t t = 0; t < frames_.count; ++t) {
      const float* x = frames_.at(t);
      int v = 0;
      for (; v + kLanes <= frames_.labels; v += kLanes) bad |= ~(load(x + v) <= splat(kMostLog));
      for (; v < frames_.labels; ++v)
        if (!(x[v] <= kMostLog)) return false;
    }
    for (int lane = 0; lane < kLanes; ++lane)
      if (bad[lane]) return false;
    return true;
  }

  size_t floats_needed(bool gradient) const {
    const size_t rows = gradient ? frames_.count + 1 : 2;
    return width_ * (4 * rows + 2 + (gradient ? 9 : 0));
  }

  // −log p(target); the gradient goes to (T, V) rows one after the other, which hold zeros.
  float run(float* scratch, float* gradient) {
    lay_out(scratch, gradient != nullptr);
    forward();
    const State last = states(frames_.count);
    // as many frames as labels never reach the last blank
    double total = frames_.count > length_ || !length_ ? value(last.blank, length_) : 2.0 * kNothing;
    if (length_) total = add(total, value(last.label, length_ - 1));
    if (!(total > kNothing / 2)) return std::numeric_limits<float>::infinity();
    if (gradient) backward(total, gradient);
    return static_cast<float>(-total * 0.69314718055994530942);
  }

 private:
  struct State {
    Row label, blank;
  };

  // log2 of a number, in float64
  static double value(const Row& row, int64_t j) { return row.exponent[j] + std::log2(static_cast<double>(row.mantissa[j])); }
  static double add(double a, double b) {
    const double top = a > b ? a : b;
    return top + std::log2(std::exp2(a - top) + std::exp2(b - top));
  }

  float* take(int64_t arrays) {
    float* piece = free_ + kLanes;
    free_ += arrays * width_;
    return piece;
  }
  Row row(float* at) const { return {at, reinterpret_cast<int32_t*>(at + width_)}; }
  State state_at(float* at) const { return {row(at), row(at + 2 * width_)}; }
  State states(int64_t t) const { return state_at(alphas_ + (keep_all_ ? t : t % 2) * 4 * width_); }

  void lay_out(float* scratch, bool gradient) {
    free_ = scratch;
    keep_all_ = gradient;
    index_ = reinterpret_cast<int32_t*>(take(1));
    skip_ = reinterpret_cast<int32_t*>(take(1));
    for (int64_t j = -kLanes; j < width_ - kLanes; ++j) {
      const bool real = j >= 0 && j < length_;
      index_[j] = real ? static_cast<int32_t>(target_[j]) : 0;
      skip_[j] = real && j > 0 && target_[j] != target_[j - 1] ? 0 : kNothing;
    }
    if (gradient) {
      betas_[0] = take(4);
      betas_[1] = take(4);
      gamma_ = take(1);
      for (float* beta : betas_) clear(state_at(beta), -kLanes, width_ - kLanes);
    }
    alphas_ = take(4 * (gradient ? frames_.count + 1 : 2));
  }

  static void clear(const State& at, int64_t from, int64_t to) {
    for (int64_t j = from; j < to; ++j) {
      set(at.label, j, 1.0f, kNothing);
      set(at.blank, j, 1.0f, kNothing);
    }
  }

  int64_t first_block(int64_t t) const {
    const int64_t first = length_ - frames_.count + t;
    return first > 0 ? first / kLanes : 0;
  }
  int64_t last_block(int64_t t) const { return (t < length_ ? t : length_) / kLanes; }

  void forward() {
    clear(states(0), -1, kLanes);
    set(states(0).blank, 0, 1.0f, 0);
    for (int64_t t = 0; t < frames_.count; ++t) {
      const State before = states(t), now = states(t + 1);
      const int64_t first = first_block(t), last = last_block(t);
      // what the frame before has not written: a block that is reached now, and the state left of the first block
      if (t && last > last_block(t - 1)) clear(before, last * kLanes, (last + 1) * kLanes);
      if (t && first == first_block(t - 1)) set(before.label, first * kLanes - 1, 1.0f, kNothing);
      const float* x = frames_.at(t);
      const Scaled blank = exponential(splat(x[blank_]));
      for (int64_t j = first * kLanes; j <= last * kLanes; j += kLanes) {
        const Scaled same = load(before.label, j), pause = load(before.blank, j);
        Scaled left = load(before.label, j - 1);
        store(now.blank, j, product(sum(pause, left), blank));
        left.exponent += load_int(skip_ + j);
        store(now.label, j, product(sum(same, pause, left), exponential(gather(x, index_ + j))));
      }
    }
  }

  // `total` is log2 p(target).
  void backward(double total, float* gradient) {
    const int32_t total_exponent = static_cast<int32_t>(std::floor(total));
    const Vec share = splat(static_cast<float>(std::exp2(total_exponent - total)));
    for (int64_t t = frames_.count - 1; t >= 0; --t) {
      // arrivals: β_t+1 p_t+1 of each state; after the last frame, one for the states a path may end in
      const State after = state_at(betas_[(t + 1) % 2]), here = state_at(betas_[t % 2]), alpha = states(t + 1);
      const bool end = t == frames_.count - 1;
      const float* x = frames_.at(t);
      const Scaled blank = exponential(splat(x[blank_]));
      Vec blanks = {};
      const int64_t first = first_block(t) * kLanes, last = last_block(t) * kLanes;
      for (int64_t j = first; j <= last; j += kLanes) {
        Scaled label_beta, blank_beta;
        if (end) {
          label_beta = blank_beta = {splat(1.0f), splat_int(kNothing)};
          for (int lane = 0; lane < kLanes; ++lane) {
            if (j + lane == length_) blank_beta.exponent[lane] = 0;
            if (j + lane == length_ - 1) label_beta.exponent[lane] = 0;
          }
        } else {
          const Scaled same = load(after.label, j), pause = load(after.blank, j);
          Scaled right = load(after.label, j + 1);
          right.exponent += load_int(skip_ + j + 1);
          label_beta = sum(same, load(after.blank, j + 1), right);
          blank_beta = sum(pause, same);
        }
        blanks += share_of(load(alpha.blank, j), blank_beta, total_exponent) * share;
        store(gamma_ + j, share_of(load(alpha.label, j), label_beta, total_exponent) * share);
        store(here.label, j, product(label_beta, exponential(gather(x, index_ + j))));
        store(here.blank, j, product(blank_beta, blank));
      }
      float* row = gradient + t * frames_.labels;
      const int64_t until = last + kLanes < length_ ? last + kLanes : length_;
      for (int64_t j = first; j < until; ++j) row[index_[j]] -= gamma_[j];
      row[blank_] -= sum(blanks);
    }
  }

  [[gnu::always_inline]] static inline Vec share_of(const Scaled& alpha, const Scaled& beta, int32_t total) {
    return alpha.mantissa * beta.mantissa * power_of_two(alpha.exponent + beta.exponent - total);
  }

  Frames frames_;
  int blank_;
  const int64_t* target_;
  int64_t length_;
  int64_t blocks_, width_;
  bool keep_all_ = false;
  int32_t *index_ = nullptr, *skip_ = nullptr;
  float *alphas_ = nullptr, *betas_[2] = {}, *gamma_ = nullptr, *free_ = nullptr;
};

static float loss_of(const CtcJob& job, int64_t b) {
  const Frames frames = job.frames(b);
  const int64_t* target = job.targets + job.offsets[b];
  const int64_t length = job.target_lengths[b];
  float* gradient = job.gradient ? job.gradient + b * job.steps * job.labels : nullptr;
  if (gradient) std::memset(gradient, 0, sizeof(float) * job.steps * job.labels);
  Lattice sequence(frames, job.blank, target, length);
  if (!sequence.numbers()) return std::numeric_limits<float>::quiet_NaN();
  if (frames.count < ctc_frames_needed(target, length)) return std::numeric_limits<float>::infinity();
  float* scratch = allocate_scratch(sequence.floats_needed(gradient != nullptr));
  const float loss = sequence.run(scratch, gradient);
  free_scratch(scratch);
  return loss;
}

void ctc_loss(const CtcJob& job, int threads) {
  struct Context {
    const CtcJob& job;
    std::atomic<int64_t> next{0};
  } context{job};
  const int useful = static_cast<int>(job.batch < threads ? job.batch : threads);
  parallel(useful, [](void* data, int, int) {
    auto& shared = *static_cast<Context*>(data);
    for (int64_t b; (b = shared.next.fetch_add(1)) < shared.job.batch;) shared.job.losses[b] = loss_of(shared.job, b);
  }, &context);
}

}  // namespace unrolled::UNROLLED_NAMESPACE
