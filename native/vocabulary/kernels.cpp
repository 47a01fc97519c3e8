// Scores over a vocabulary, on one instruction set: a row is read once from afar, and then again from the nearest cache.
#include <atomic>
#include <cmath>
#include <limits>

#include "runtime/bfloat.h"
#include "runtime/kernels.h"
#include "runtime/math.h"
#include "runtime/bfloat_product.h"
#include "runtime/parallel.h"
#include "vocabulary/vocabulary.h"

namespace unrolled::UNROLLED_NAMESPACE {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr int64_t kRowsAtOnce = 4;  // that a thread takes

[[gnu::always_inline]] static inline Vec higher(Vec a, Vec b) { return a > b ? a : b; }

// Rows of float32, or of bfloat16.
struct Wide {
  using Type = float;
  static Vec get(const float* row, int i) { return load(row + i); }
  static float one(const float* row, int i) { return row[i]; }
  static void put(float* row, int i, Vec v) { store(row + i, v); }
  static void put_one(float* row, int i, float x) { row[i] = x; }
};
struct Narrow {
  using Type = Bfloat;
  static Vec get(const Bfloat* row, int i) { return load_bfloat(row + i); }
  static float one(const Bfloat* row, int i) { return from_bfloat(row[i]); }
  static void put(Bfloat* row, int i, Vec v) { store_bfloat(row + i, v); }
  static void put_one(Bfloat* row, int i, float x) { row[i] = to_bfloat(x); }
};

template <class Store>
static float highest(const typename Store::Type* row, int size) {
  Vec most = splat(kNever);
  int i = 0;
  for (; i + kLanes <= size; i += kLanes) most = higher(Store::get(row, i), most);
  float top = maximum(most);
  for (; i < size; ++i) top = Store::one(row, i) > top ? Store::one(row, i) : top;
  return top;
}

// e^x of each lane on its own, for what is left at a row's end: the same numbers as inside it.
static inline float exp_of(float x) { return exp(splat(x))[0]; }

// log Σ exp; NaN if any score is one, or all are −infinity.
static float log_total(const float* row, int size, float top) {
  if (!(top > kNever)) return std::numeric_limits<float>::quiet_NaN();
  Vec sums = {};
  int i = 0;
  for (; i + kLanes <= size; i += kLanes) sums += exp(load(row + i) - top);
  float total = sum(sums);
  for (; i < size; ++i) total += exp_of(row[i] - top);
  return top + std::log(total);
}

struct Ranked {
  float* values;
  int64_t* tokens;
  const uint8_t* blocked;
  int best, found = 0;

  float least() const { return found < best ? kNever : values[best - 1]; }
  void consider(float value, int token) {
    if (!(value > least()) || (blocked && blocked[token])) return;
    int place = found < best ? found++ : best - 1;
    for (; place > 0 && value > values[place - 1]; --place) {
      values[place] = values[place - 1];
      tokens[place] = tokens[place - 1];
    }
    values[place] = value;
    tokens[place] = token;
  }
};

static void top_of_row(const TopJob& job, int64_t r) {
  constexpr int kBlocks = 4;  // looked at together: most hold nothing that counts
  const float* row = job.scores + r * job.row_stride;
  Ranked ranked{job.values + r * job.best, job.tokens + r * job.best,
                job.blocked ? job.blocked + r * job.blocked_stride : nullptr, job.best};
  float top = kNever;
  IntVec undefined = {};
  int i = 0;
  for (; i + kBlocks * kLanes <= job.size; i += kBlocks * kLanes) {
    Vec most = splat(kNever);
    for (int b = 0; b < kBlocks; ++b) {
      const Vec x = load(row + i + b * kLanes);
      most = higher(x, most);
      undefined |= x != x;
    }
    const float here = maximum(most);
    top = here > top ? here : top;
    if (!(here > ranked.least())) continue;
    for (int j = i; j < i + kBlocks * kLanes; ++j) ranked.consider(row[j], j);
  }
  for (; i < job.size; ++i) {
    top = row[i] > top ? row[i] : top;
    undefined[0] |= row[i] != row[i] ? -1 : 0;
    ranked.consider(row[i], i);
  }
  for (int j = ranked.found; j < job.best; ++j) ranked.values[j] = kNever, ranked.tokens[j] = 0;
  bool any = false;
  for (int lane = 0; lane < kLanes; ++lane) any |= undefined[lane] != 0;
  for (int j = 0; any && j < job.best; ++j) ranked.values[j] = std::numeric_limits<float>::quiet_NaN();
  if (job.totals) job.totals[r] = log_total(row, job.size, top);
}

// `sums_to` (V,), if there is one, gets the gradient added to it.
template <class Store>
static void entropy_of_row(const CrossEntropyJob& job, int64_t r, float* sums_to) {
  auto* row = static_cast<typename Store::Type*>(job.scores) + r * job.row_stride;
  const int target = static_cast<int>(job.targets[r]), size = job.size;
  const float top = highest<Store>(row, size), right = Store::one(row, target);
  Vec sums = {}, scores = {};
  int i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const Vec x = Store::get(row, i);
    sums += exp(x - top);
    scores += x;
  }
  float total = sum(sums), all = sum(scores);
  for (; i < size; ++i) {
    total += exp_of(Store::one(row, i) - top);
    all += Store::one(row, i);
  }
  const float log_sum = top + std::log(total), share = job.smoothing / size;
  job.losses[r] = log_sum - (1 - job.smoothing) * right - (share > 0 ? share * all : 0.0f);
  if (!job.gradient) return;
  const float inverse = 1 / total;
  for (i = 0; i + kLanes <= size; i += kLanes) {
    const Vec gradient = exp(Store::get(row, i) - top) * inverse - share;
    Store::put(row, i, gradient);
    if (sums_to) store(sums_to + i, load(sums_to + i) + gradient);
  }
  for (; i < size; ++i) {
    const float gradient = exp_of(Store::one(row, i) - top) * inverse - share;
    Store::put_one(row, i, gradient);
    if (sums_to) sums_to[i] += gradient;
  }
  Store::put_one(row, target, exp_of(right - top) * inverse - share - (1 - job.smoothing));
  if (sums_to) sums_to[target] -= 1 - job.smoothing;
}

// Calls each(job, row) for all rows.
template <class Job, class Each>
static void rows_of(const Job& job, int threads, Each each) {
  struct Context {
    const Job& job;
    Each each;
    std::atomic<int64_t> next{0};
  } context{job, each};
  const int64_t parts = (job.rows + kRowsAtOnce - 1) / kRowsAtOnce;
  const int useful = static_cast<int>(parts < threads ? parts : threads);
  parallel(useful, [](void* data, int, int) {
    auto& shared = *static_cast<Context*>(data);
    for (int64_t first; (first = shared.next.fetch_add(kRowsAtOnce)) < shared.job.rows;)
      for (int64_t r = first; r < first + kRowsAtOnce && r < shared.job.rows; ++r) shared.each(shared.job, r);
  }, &context);
}

// Each thread takes panels of W one by one, and multiplies all rows with it while it is near.
void narrow_scores(const NarrowScoresJob& job, int threads) {
  struct Context {
    const NarrowScoresJob& job;
    Bfloat* rows;
    std::atomic<int> next{0};
  };
  const int stride = even(job.depth);
  float* memory = allocate_scratch((static_cast<size_t>(job.rows) * stride + 1) / 2);
  Context context{job, reinterpret_cast<Bfloat*>(memory)};
  for (int r = 0; r < job.rows; ++r)
    narrow_row(job.x + r * job.x_stride, job.depth, context.rows + static_cast<size_t>(r) * stride);
  const int panels = ceil_div(job.size, kNarrowWidth);
  parallel(panels < threads ? panels : threads, [](void* data, int, int) {
    auto& shared = *static_cast<Context*>(data);
    const NarrowScoresJob& job = shared.job;
    const int stride = even(job.depth);
    const size_t wide = static_cast<size_t>(job.depth) * kNarrowWidth, narrow = narrow_panel(job.depth);
    float* wide_panel = allocate_scratch(wide + narrow + static_cast<size_t>(job.rows) * kNarrowWidth);
    float *panel = wide_panel + wide, *sums = panel + narrow;
    for (int first; (first = shared.next.fetch_add(kNarrowWidth)) < job.size;) {
      pack_gates(job.weight, job.size, job.depth, 1, kNarrowVecs, first, wide_panel);
      narrow_pairs(wide_panel, job.depth, panel);
      narrow_product(shared.rows, stride, job.rows, panel, job.depth, sums);
      for (int v = 0; v < kNarrowWidth && first + v < job.size; v += kLanes) {
        const int unit = first + v, count = job.size - unit;
        const Vec bias = job.bias ? load(job.bias + unit, count) : Vec{};
        for (int r = 0; r < job.rows; ++r)
          store(job.scores + r * job.scores_stride + unit, load(sums + r * kNarrowWidth + v) + bias, count);
      }
    }
    free_scratch(wide_panel);
  }, &context);
  free_scratch(memory);
}

bool has_narrow() { return narrow_runs(); }

void top_scores(const TopJob& job, int threads) { rows_of(job, threads, top_of_row); }

// Each thread has the same rows in every run, and sums of its own, which are added up in order: so are the results the same.
void cross_entropy(const CrossEntropyJob& job, int threads) {
  struct Context {
    const CrossEntropyJob& job;
    float* sums;  // (threads, V)
  };
  const int useful = static_cast<int>(job.rows < threads ? job.rows : threads);
  const size_t size = job.size;
  float* sums = job.column_sums ? allocate_scratch(useful * size) : nullptr;
  for (size_t i = 0; sums && i < useful * size; ++i) sums[i] = 0;
  Context context{job, sums};
  parallel(useful, [](void* data, int id, int count) {
    const auto& [job, sums] = *static_cast<Context*>(data);
    float* own = sums ? sums + static_cast<size_t>(id) * job.size : nullptr;
    for (int64_t r = job.rows * id / count; r < job.rows * (id + 1) / count; ++r)
      if (job.narrow) entropy_of_row<Narrow>(job, r, own);
      else entropy_of_row<Wide>(job, r, own);
  }, &context);
  if (!sums) return;
  for (size_t i = 0; i < size; ++i) job.column_sums[i] = 0;
  for (int id = 0; id < useful; ++id)
    for (size_t i = 0; i < size; ++i) job.column_sums[i] += sums[id * size + i];
  free_scratch(sums);
}

}  // namespace unrolled::UNROLLED_NAMESPACE
