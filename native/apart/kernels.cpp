// Products and attention of rows apart, on one instruction set.
#include "apart/apart.h"

#include <limits>

#include "runtime/kernels.h"
#include "runtime/math.h"
#include "runtime/parallel.h"
#include "runtime/product.h"

namespace unrolled::UNROLLED_NAMESPACE {

constexpr int kVecs = 4;
constexpr int kWidth = kVecs * kLanes;
constexpr int kProductRows = 240;  // their sums stay in the nearest cache
constexpr double kWorthAThread = 1e6;

// Calls each(first, end) for a part of `units` on each thread, on one where there is little to do.
template <class Each>
static void over_units(int64_t units, double work, int threads, Each each) {
  struct Context {
    int64_t units;
    Each& each;
  } context{units, each};
  if (work < kWorthAThread || units < 2) threads = 1;
  parallel(
      threads,
      [](void* data, int id, int count) {
        Context& c = *static_cast<Context*>(data);
        c.each(c.units * id / count, c.units * (id + 1) / count);
      },
      &context);
}

// Copies a tile of sums (rows, kWidth) to where it belongs, with a bias if there is one.
static void put_tile(const float* tile, int rows, int columns, const float* bias, float* out, int64_t stride) {
  for (int v = 0; v < kVecs && v * kLanes < columns; ++v) {
    const int valid = columns - v * kLanes;
    const Vec extra = bias ? load(bias + v * kLanes, valid) : Vec{};
    for (int r = 0; r < rows; ++r)
      store(out + r * stride + v * kLanes, load(tile + r * kWidth + v * kLanes) + extra, valid);
  }
}

void apart_product(const ApartProductJob& job, int threads) {
  const int panels = ceil_div(job.columns, kWidth), blocks = ceil_div(job.rows, kProductRows);
  const double work = 2.0 * job.count * job.rows * job.columns * job.depth;
  const auto part = [&](int64_t first, int64_t end) {
    float* panel = allocate_scratch(static_cast<size_t>(job.depth) * kWidth + kProductRows * kWidth);
    float* tile = panel + static_cast<size_t>(job.depth) * kWidth;
    int64_t packed = -1;
    for (int64_t unit = first; unit < end; ++unit) {
      const int block = static_cast<int>(unit % blocks), at = static_cast<int>(unit / blocks % panels) * kWidth;
      const int64_t which = unit / blocks / panels;
      const float* w = job.w + which * job.w_next;
      if (const int64_t wanted = job.w_next ? unit / blocks : unit / blocks % panels; wanted != packed) {
        if (job.upright) pack_columns(w, job.columns, job.depth, kWidth, at, panel);
        else pack_gates(w, job.columns, job.depth, 1, kVecs, at, panel);
        packed = wanted;
      }
      const int row = block * kProductRows, rows = job.rows - row < kProductRows ? job.rows - row : kProductRows;
      product<kVecs>(job.x + which * job.x_next + row * job.x_row, job.x_row, rows, panel, job.depth, tile);
      float* out = job.out + (which * job.rows + row) * job.columns + at;
      put_tile(tile, rows, job.columns - at, job.bias ? job.bias + at : nullptr, out, job.columns);
    }
    free_scratch(panel);
  };
  over_units(static_cast<int64_t>(job.count) * panels * blocks, work, threads, part);
}

namespace {

// One thread's view of attention: the positions that are seen lie side by side in its memory.
class Attending {
 public:
  explicit Attending(const ApartAttentionJob& job)
      : job_(job),
        places_(ceil_div(job.positions, kWidth) * kWidth),
        columns_(ceil_div(job.size, kWidth) * kWidth),
        rows_(job.queries < kProductRows ? job.queries : kProductRows) {
    const size_t places = places_, size = job.size, columns = columns_, rows = rows_;
    memory_ = allocate_scratch(2 * places * size + places * columns + rows * (places + kWidth) + places);
    keys_ = memory_;
    key_panels_ = keys_ + places * size;
    value_panels_ = key_panels_ + places * size;
    shares_ = value_panels_ + places * columns;
    tile_ = shares_ + rows * places;
    seen_ = reinterpret_cast<int32_t*>(tile_ + rows * kWidth);
  }
  ~Attending() { free_scratch(memory_); }
  Attending(const Attending&) = delete;

  void run(int b, int head) {
    if (job_.mask && job_.mask_row) {  // every query sees its own positions
      for (int t = 0; t < job_.queries; ++t) {
        gather(b, head, job_.mask + b * job_.mask_batch + t * job_.mask_row, past(t));
        look(b, head, t, 1);
      }
      return;
    }
    gather(b, head, job_.mask ? job_.mask + b * job_.mask_batch : nullptr, job_.positions);
    for (int t = 0; t < job_.queries; t += kProductRows)
      look(b, head, t, job_.queries - t < kProductRows ? job_.queries - t : kProductRows);
  }

 private:
  // Positions before which a query sees.
  int past(int t) const {
    const int end = job_.causal ? t + 1 + job_.positions - job_.queries : job_.positions;
    return end < 0 ? 0 : end;
  }

  void gather(int b, int head, const uint8_t* mask, int end) {
    count_ = 0;
    for (int s = 0; s < end; ++s)
      if (!mask || mask[s]) seen_[count_++] = s;
    const float* k = job_.k + b * job_.k_batch + head * job_.k_head;
    const float* v = job_.v + b * job_.v_batch + head * job_.v_head;
    for (int i = 0; i < count_; ++i)
      __builtin_memcpy(keys_ + static_cast<size_t>(i) * job_.size, k + seen_[i] * job_.k_row, sizeof(float) * job_.size);
    for (int at = 0; at < count_; at += kWidth)
      pack_gates(keys_, count_, job_.size, 1, kVecs, at, key_panels_ + static_cast<size_t>(at) * job_.size);
    for (int at = 0; at < job_.size; at += kWidth)
      for (int i = 0; i < count_; ++i) {
        float* to = value_panels_ + (static_cast<size_t>(at) * places_ + static_cast<size_t>(i) * kWidth);
        const float* from = v + seen_[i] * job_.v_row + at;
        for (int lane = 0; lane < kWidth; lane += kLanes) {
          const int valid = job_.size - at - lane;
          store(to + lane, valid > 0 ? load(from + lane, valid) : Vec{});
        }
      }
  }

  void look(int b, int head, int first, int rows) {
    const float* q = job_.q + b * job_.q_batch + head * job_.q_head + first * job_.q_row;
    for (int at = 0; at < count_; at += kWidth) {
      product<kVecs>(q, job_.q_row, rows, key_panels_ + static_cast<size_t>(at) * job_.size, job_.size, tile_);
      for (int r = 0; r < rows; ++r)
        for (int lane = 0; lane < kWidth; lane += kLanes)
          store(shares_ + static_cast<size_t>(r) * places_ + at + lane, load(tile_ + r * kWidth + lane) * job_.scale);
    }
    int known = 0;  // positions that the query before saw
    for (int r = 0; r < rows; ++r) {
      const int end = past(first + r);
      while (known < count_ && seen_[known] < end) ++known;
      softmax(shares_ + static_cast<size_t>(r) * places_, known);
    }
    const int64_t wide = static_cast<int64_t>(job_.heads) * job_.size;
    float* out = job_.out + (static_cast<int64_t>(b) * job_.queries + first) * wide + head * job_.size;
    for (int at = 0; at < job_.size; at += kWidth) {
      const float* panel = value_panels_ + static_cast<size_t>(at) * places_;
      product<kVecs>(shares_, places_, rows, panel, count_, tile_);
      put_tile(tile_, rows, job_.size - at, nullptr, out + at, wide);
    }
    if (job_.weights) show(b, head, first, rows);
  }

  // The first `known` scores of a row become shares; the others are zero.
  void softmax(float* row, int known) const {
    constexpr float kNever = -std::numeric_limits<float>::infinity();
    Vec most = splat(kNever);
    for (int i = 0; i < known; i += kLanes) {
      Vec v = load(row + i);
      for (int lane = known - i; lane < kLanes; ++lane) v[lane] = kNever;
      store(row + i, v);
      most = v > most ? v : most;
    }
    const float top = maximum(most);
    Vec sums = {};
    for (int i = 0; i < known; i += kLanes) {
      Vec v = exp(load(row + i) - top);
      for (int lane = known - i; lane < kLanes; ++lane) v[lane] = 0;
      store(row + i, v);
      sums += v;
    }
    const float total = sum(sums);
    for (int i = 0; i < known; i += kLanes) store(row + i, load(row + i) / total);
    for (int i = round_up(known, kLanes); i < count_; i += kLanes) store(row + i, Vec{});
  }

  void show(int b, int head, int first, int rows) const {
    float* to = job_.weights +
                ((static_cast<int64_t>(b) * job_.heads + head) * job_.queries + first) * job_.positions;
    for (int r = 0; r < rows; ++r, to += job_.positions) {
      for (int s = 0; s < job_.positions; ++s) to[s] = 0;
      for (int i = 0; i < count_; ++i) to[seen_[i]] = shares_[static_cast<size_t>(r) * places_ + i];
    }
  }

  const ApartAttentionJob& job_;
  const int places_, columns_, rows_;
  float *memory_, *keys_, *key_panels_, *value_panels_, *shares_, *tile_;
  int32_t* seen_;
  int count_ = 0;
};

}  // namespace

void apart_attention(const ApartAttentionJob& job, int threads) {
  const double work = 4.0 * job.batch * job.heads * job.queries * job.positions * job.size;
  const auto part = [&](int64_t first, int64_t end) {
    Attending attending(job);
    for (int64_t unit = first; unit < end; ++unit)
      attending.run(static_cast<int>(unit / job.heads), static_cast<int>(unit % job.heads));
  };
  over_units(static_cast<int64_t>(job.batch) * job.heads, work, threads, part);
}

}  // namespace unrolled::UNROLLED_NAMESPACE
