// The base of all scans: which row belongs to which sequence, and where a state goes after a step.
#pragma once

#include <initializer_list>

#include "cells/norm.h"
#include "recurrence/job.h"
#include "runtime/bfloat_product.h"
#include "runtime/math.h"
#include "runtime/product.h"
#include "runtime/team.h"

namespace unrolled::UNROLLED_NAMESPACE {

// Vectors of columns in a panel of a product whose columns are units of one kind.
constexpr int kPlainVecs = 4;
constexpr int kPlainWidth = kPlainVecs * kLanes;

// A thread's place in a scan, and its memory.
struct Place {
  const ScanJob& job;
  Plan plan;
  int id;
  Barrier* everyone;
  Barrier* group_barrier;
  Arena* shared;  // one for all threads, one for a group, one for a thread
  Arena* of_group;
  Arena* own;
  size_t group_stride = 0;  // from one group's memory to the next one's
};

// One sequence at one step.
struct RowAt {
  int64_t row;       // where this step is in the rows
  int64_t next_row;  // where the step that runs next is; -1 after the last
  int b;             // which of the batch
  bool resets_here;  // the state this step read had been reset
  bool resets_next;
};

struct Range {
  int begin, end;
};

// The part of `count` things that belongs to one of `parts`.
static inline Range part_of(int count, int part, int parts) {
  return {static_cast<int>(static_cast<int64_t>(count) * part / parts),
          static_cast<int>(static_cast<int64_t>(count) * (part + 1) / parts)};
}

// One thread's view of a scan.
class Scan {
 protected:
  explicit Scan(const Place& place)
      : job(place.job),
        plan_(place.plan),
        group_(place.id / place.plan.members),
        member_(place.id % place.plan.members),
        id_(place.id),
        everyone_(place.everyone),
        group_barrier_(place.group_barrier),
        group_rows_(ceil_div(job.batch, place.plan.groups)),
        rows_(reinterpret_cast<RowAt*>(place.own->take(group_rows_ * sizeof(RowAt) / sizeof(float)))) {}

  void meet_group() { group_barrier_->wait(plan_.members); }
  void meet_everyone() { everyone_->wait(plan_.threads()); }

  int rank(int j) const { return j * plan_.groups + group_; }
  int batch_of(int j) const { return job.order ? static_cast<int>(job.order[rank(j)]) : rank(j); }
  int rows_in_batch() const { return ceil_div(job.batch - group_, plan_.groups); }
  int64_t row(int t, int j) const { return static_cast<int64_t>(t) * job.batch + rank(j); }
  bool resets(int b, int t) const {
    return job.resets && job.resets[b * job.resets_batch_stride + t * job.resets_step_stride];
  }
  int length(int b) const { return job.lengths ? static_cast<int>(job.lengths[b]) : job.steps; }
  int first_step(int b) const { return job.reverse ? length(b) - 1 : 0; }

  // Sequences of this group that have a step t.
  int active(int t) const {
    const int count = job.active ? static_cast<int>(job.active[t]) : job.batch;
    return count > group_ ? ceil_div(count - group_, plan_.groups) : 0;
  }

  // Fills rows_ for step t; returns how many there are.
  int look_up_rows(int t) {
    const int count = active(t), next = job.reverse ? t - 1 : t + 1;
    for (int j = 0; j < count; ++j) {
      const int b = batch_of(j);
      const bool goes_on = next >= 0 && next < length(b);
      rows_[j] = {row(t, j), goes_on ? row(next, j) : -1, b, resets(b, t), goes_on && resets(b, next)};
    }
    return count;
  }

  Range my_part(int count) const { return part_of(count, member_, plan_.members); }

  // Floats of a panel of kPlainWidth columns.
  static size_t panel_size(const ScanJob& job, int depth) {
    return job.narrow ? narrow_panel(depth) : static_cast<size_t>(depth) * kPlainWidth;
  }
  // A panel that `pack` makes, in bfloat16 if it is to be; `wide` is room for one in float32.
  template <class Pack>
  void put_panel(float* to, int depth, float* wide, Pack pack) const {
    pack(job.narrow ? wide : to);
    if (job.narrow) narrow_pairs(wide, depth, to);
  }
  static void narrow_rows(const float* from, ptrdiff_t stride, int count, int depth, Bfloat* to) {
    for (int j = 0; j < count; ++j) narrow_row(from + j * stride, depth, to + static_cast<size_t>(j) * even(depth));
  }
  static Bfloat* take_bfloats(Arena* arena, size_t count) {
    return reinterpret_cast<Bfloat*>(arena->take((count + 1) / 2));
  }

  const ScanJob& job;
  const Plan plan_;
  const int group_, member_, id_;
  Barrier *everyone_, *group_barrier_;
  const int group_rows_;
  RowAt* rows_;
};

// The share of the old state that zoneout keeps.
static inline bool has_keep(const StateJob& state) { return state.keep.data || state.keep_rate != 0; }

static inline Vec keep_share(const StateJob& state, int b, int t, int unit, int count) {
  return state.keep.data ? load(state.keep.at(b, t) + unit, count) : splat(state.keep_rate);
}

// h or c of a group's sequences in the forward pass: a step reads one buffer and writes the other, for the next.
class Track {
 public:
  Track(const StateJob& state, int size, int rows, Arena* arena)
      : state_(state), size_(size), stride_(round_up(size, kPlainWidth)) {
    for (float*& buffer : current_) buffer = arena->take(static_cast<size_t>(rows) * stride_);
  }

  int stride() const { return stride_; }
  const float* entering(int parity, int j) const { return current_[parity] + static_cast<size_t>(j) * stride_; }

  // The state before the first step of sequence b; `row` is that step's, -1 if it has none.
  void begin(int j, int b, int64_t row, bool reset) {
    const float* from = state_.initial + static_cast<size_t>(b) * size_;
    if (row < 0) return copy(state_.final + static_cast<size_t>(b) * size_, from);
    if (reset) from = state_.reset ? state_.reset + static_cast<size_t>(b) * size_ : nullptr;
    for (float* buffer : current_) copy(buffer + static_cast<size_t>(j) * stride_, from);  // it may begin at any parity
    if (state_.entering) copy(state_.entering + row * size_, from);
  }

  // Zoneout's mixture of the old state and the new one.
  Vec mixed(int b, int t, int unit, int count, Vec old, Vec fresh) const {
    if (!has_keep(state_)) return fresh;
    const Vec keep = keep_share(state_, b, t, unit, count);
    return keep * old + (1.0f - keep) * fresh;
  }

  // The state that a step computes is the state it leaves.
  bool simple() const { return !has_keep(state_) && !state_.left; }

  // Puts the state after a step where it is read next; returns what the next step reads.
  [[gnu::always_inline]] Vec leave(const RowAt& at, int parity, int j, int unit, int count, Vec value) {
    if (state_.left) store(state_.left + at.row * size_ + unit, value, count);
    if (at.next_row < 0) {
      store(state_.final + static_cast<size_t>(at.b) * size_ + unit, value, count);
      return value;
    }
    if (at.resets_next)
      value = state_.reset ? load(state_.reset + static_cast<size_t>(at.b) * size_ + unit, count) : Vec{};
    store(current_[1 - parity] + static_cast<size_t>(j) * stride_ + unit, value);
    if (state_.entering) store(state_.entering + at.next_row * size_ + unit, value, count);
    return value;
  }

 private:
  void copy(float* to, const float* from) const {
    for (int i = 0; i < size_; ++i) to[i] = from ? from[i] : 0.0f;
  }
  const StateJob& state_;
  const int size_, stride_;
  float* current_[2];
};

// h in the forward pass: also the output, and the product may see it through a mask.
class HiddenTrack {
 public:
  HiddenTrack(const ScanJob& job, int rows, Arena* arena)
      : job_(job), track_(job.h, job.width, rows, arena), seen_{nullptr, nullptr} {
    if (job.hidden_mask)
      for (float*& buffer : seen_) buffer = arena->take(static_cast<size_t>(rows) * track_.stride());
  }

  int stride() const { return track_.stride(); }
  const float* entering(int parity, int j) const { return track_.entering(parity, j); }
  const float* seen(int parity, int j) const {
    return job_.hidden_mask ? seen_[parity] + static_cast<size_t>(j) * stride() : entering(parity, j);
  }

  void begin(int j, int b, int64_t row, bool reset) {
    track_.begin(j, b, row, reset);
    if (!job_.hidden_mask || row < 0) return;
    for (int parity = 0; parity < 2; ++parity)
      for (int unit = 0; unit < job_.width; ++unit)
        seen_[parity][j * stride() + unit] = entering(parity, j)[unit] * job_.hidden_mask[b * job_.width + unit];
    if (job_.seen)
      for (int unit = 0; unit < job_.width; ++unit) job_.seen[row * job_.width + unit] = seen_[0][j * stride() + unit];
  }

  bool simple() const { return track_.simple() && !job_.hidden_mask; }
  [[gnu::always_inline]] void leave_simply(const RowAt& at, int parity, int j, int unit, Vec h) {
    track_.leave(at, parity, j, unit, kLanes, h);
  }

  // `fresh` is the step's own h, `old` the one before it.
  [[gnu::always_inline]] void leave(const RowAt& at, int t, int parity, int j, int unit, int count, Vec old, Vec fresh) {
    const Vec h = track_.mixed(at.b, t, unit, count, old, fresh);
    store(job_.output.at(at.b, t) + unit, h, count);
    const Vec next = track_.leave(at, parity, j, unit, count, h);
    if (!job_.hidden_mask || at.next_row < 0) return;
    const Vec seen = next * load(job_.hidden_mask + static_cast<size_t>(at.b) * job_.width + unit, count);
    store(seen_[1 - parity] + static_cast<size_t>(j) * stride() + unit, seen);
    if (job_.seen) store(job_.seen + at.next_row * job_.width + unit, seen, count);
  }

 private:
  const ScanJob& job_;
  Track track_;
  float* seen_[2];
};

// Sums of products: those of sequence j and gate k are at data + j·row_step + k·gate_step.
struct SumsAt {
  const float* data;
  ptrdiff_t row_step, gate_step;
  Vec at(int j, int gate, int count) const {
    return data ? load(data + j * row_step + gate * gate_step, count) : Vec{};
  }
  SumsAt from_unit(int unit) const { return {data ? data + unit : nullptr, row_step, gate_step}; }
};

// The base of the forward scans.
class ForwardScan : protected Scan {
 public:
  static constexpr bool kBackward = false;

 protected:
  explicit ForwardScan(const Place& place)
      : Scan(place),
        h_(job, group_rows_, place.of_group),
        hidden_(job.hidden),
        gates_(traits_of(job.kind).gates),
        x_copy_(place.of_group->take(static_cast<size_t>(group_rows_) * job.features)),
        bias_(place.own->take(gates_ * hidden_ + kLanes)),
        wide_panel_(place.own->take(
            job.narrow ? static_cast<size_t>(job.features > job.width ? job.features : job.width) * kPlainWidth : 0)) {
    if (job.norm_hh && job.x.data)
      x_sums_ = place.of_group->take(static_cast<size_t>(group_rows_) * gates_ * hidden_ + kLanes);
    if (by_rows()) {
      raw_ = place.of_group->take(static_cast<size_t>(group_rows_) * gates_ * hidden_ + kLanes);
      sums_ = place.own->take(gates_ * hidden_ + kLanes);
    }
  }

 public:
  void finish() {}

 protected:
  // Layer norm needs whole rows of sums, otherwise each thread continues with its own units.
  bool by_rows() const { return job.norm_hh || job.norm_c; }
  float* x_row(int j) const { return x_sums_ + static_cast<size_t>(j) * gates_ * hidden_; }
  float* raw_row(int j) const {
    return (job.raw ? job.raw + rows_[j].row * gates_ * hidden_ : raw_ + static_cast<size_t>(j) * gates_ * hidden_);
  }
  // The statistics of one of the two layer norms of a step.
  void keep_stats(int j, int slot, NormStats stats) const {
    if (!job.stats) return;
    float* to = job.stats + rows_[j].row * 4 + 2 * slot;
    to[0] = stats.mean, to[1] = stats.inverse;
  }
  // LN of some of a row's sums, into sums_.
  void norm_row(int j, int first, int size, int slot) const {
    const NormStats stats = norm_stats(raw_row(j) + first, size);
    normalize(raw_row(j) + first, size, stats, job.norm_hh + first, nullptr, sums_ + first);
    keep_stats(j, slot, stats);
  }

  // b_ih + b_hh, which most gates see added up.
  void add_biases() {
    for (int i = 0; i < gates_ * hidden_; ++i)
      bias_[i] = (job.bias_ih ? job.bias_ih[i] : 0.0f) + (job.bias_hh ? job.bias_hh[i] : 0.0f);
  }
  Vec bias(int gate, int unit) const { return load(bias_ + gate * hidden_ + unit); }

  // The inputs of a step's sequences, for the product: where they are, or copied side by side.
  void look_up_inputs(int t, int count) {
    if (!job.x.data) return;
    if (!job.order && job.x.batch_stride == job.features) {
      x_rows_ = job.x.at(group_, t);
      x_stride_ = plan_.groups * job.x.batch_stride;
      return;
    }
    const Range mine = my_part(count);
    for (int j = mine.begin; j < mine.end; ++j) {
      const float* from = job.x.at(rows_[j].b, t);
      float* to = x_copy_ + static_cast<size_t>(j) * job.features;
      for (int i = 0; i < job.features; ++i) to[i] = from[i];
    }
    x_rows_ = x_copy_;
    x_stride_ = job.features;
    meet_group();
  }

  // W x of this step where it is not in one tile with U h: computed before for all steps, or kept apart by layer norm.
  SumsAt x_sums(int t) const {
    const ptrdiff_t wide = static_cast<ptrdiff_t>(gates_) * hidden_;
    if (job.gates_x) return {job.gates_x + row(t, 0) * wide, plan_.groups * wide, hidden_};
    return {x_sums_, x_sums_ ? wide : 0, hidden_};
  }

  // Each member lays out the initial states of some of the group's sequences, begin(j, b, first row, reset), and the
  // outputs of their padding.
  template <class Begin>
  void begin_rows(Begin begin) {
    add_biases();
    const Range mine = my_part(rows_in_batch());
    for (int j = mine.begin; j < mine.end; ++j) {
      const int b = batch_of(j), first = first_step(b);
      begin(j, b, length(b) > 0 ? row(first, j) : -1, length(b) > 0 && resets(b, first));
      for (int t = length(b); t < job.steps; ++t)
        for (int unit = 0; unit < job.width; ++unit) job.output.at(b, t)[unit] = 0;
    }
    meet_everyone();
  }

  // Packs `panels` panels of rows of U (or R); every thread of the scan does its part.
  void pack_shared(const float* matrix, int hidden, int depth, int gates, int blocks, int panels, float* packed) const {
    const Range mine = part_of(panels, id_, plan_.threads());
    const size_t size = job.narrow ? narrow_panel(depth) : static_cast<size_t>(gates) * blocks * kLanes * depth;
    for (int panel = mine.begin; panel < mine.end; ++panel)
      put_panel(packed + panel * size, depth, wide_panel_, [&](float* to) {
        pack_gates(matrix, hidden, depth, gates, blocks, panel * blocks * kLanes, to);
      });
  }

  HiddenTrack h_;
  const int hidden_, gates_;
  float* x_copy_;
  const float* x_rows_ = nullptr;
  ptrdiff_t x_stride_ = 0;
  float *bias_, *wide_panel_;
  float *x_sums_ = nullptr, *raw_ = nullptr, *sums_ = nullptr;  // with layer norm
};

// The gradient of one state between two steps of the backward pass.
class GradientTrack {
 public:
  GradientTrack(const StateJob& state, int size, int rows, Arena* arena)
      : state_(state),
        size_(size),
        stride_(round_up(size, kPlainWidth)),
        current_(arena->take(static_cast<size_t>(rows) * stride_)) {}

  int stride() const { return stride_; }
  const float* at(int j) const { return current_ + static_cast<size_t>(j) * stride_; }

  void begin(int j, int b) {
    for (int unit = 0; unit < size_; ++unit)
      current_[j * stride_ + unit] = state_.d_final ? state_.d_final[static_cast<size_t>(b) * size_ + unit] : 0.0f;
  }

  void end(int j, int b) const {
    if (!state_.d_initial) return;
    for (int unit = 0; unit < size_; ++unit)
      state_.d_initial[static_cast<size_t>(b) * size_ + unit] = at(j)[unit];
  }

  // The gradient at the state a step left; traces show it.
  void show(const RowAt& at, int unit, int count, Vec gradient) const {
    if (state_.d_left) store(state_.d_left + at.row * size_ + unit, gradient, count);
  }

  // The gradient at the state a step read: it belongs to the step before, or, after a reset, to the reset state.
  void pass(const RowAt& at, int j, int unit, int count, Vec gradient) {
    if (at.resets_here) {
      if (state_.d_reset) {
        float* to = state_.d_reset + static_cast<size_t>(at.b) * size_ + unit;
        store(to, load(to, count) + gradient, count);
      }
      gradient = Vec{};
    }
    store(current_ + static_cast<size_t>(j) * stride_ + unit, gradient);
  }

 private:
  const StateJob& state_;
  const int size_, stride_;
  float* current_;
};

// Sums over the batch and time that threads make for themselves and add up at the end.
class Sums {
 public:
  Sums(int size, Arena* arena) : size_(size), values_(arena->take(round_up(size, kLanes) + kLanes)) {}
  void clear() {
    for (int i = 0; i < size_; ++i) values_[i] = 0;
  }
  void add(int at, int count, Vec v) { store(values_ + at, load(values_ + at, count) + v, count); }
  void add_to(float* total) const { add_to(total, size_); }
  void add_to(float* total, int size) const {
    for (int i = 0; total && i < size; ++i) total[i] += values_[i];
  }

 private:
  const int size_;
  float* values_;
};

// Where a weight's gradient finds the rows it is multiplied with: the input, or rows that the forward pass saved.
struct Source {
  const Sequence* sequence;
  const float* rows;
  int width;
};

// The base of the backward scans.
//
// Gradients of a few steps gather in a chunk that stays in the cache: the products with U and W read it, and when it is
// full one outer product adds it to the weights' gradients. Each group of threads has its own sums of those.
class BackwardScan : protected Scan {
 public:
  static constexpr bool kBackward = true;

 protected:
  // `separate`: ∂L/∂(U h) is not ∂L/∂(W x), so that a chunk's rows hold both.
  BackwardScan(const Place& place, bool separate)
      : Scan(place),
        hidden_(job.hidden),
        wide_(traits_of(job.kind).gates * hidden_),
        recurrent_at_(separate ? wide_ : 0),
        chunk_stride_(round_up(recurrent_at_ + wide_, kLanes) + kLanes),
        chunk_rows_(round_up(kChunk < group_rows_ ? group_rows_ : kChunk, group_rows_)),
        dh_(job.h, job.width, group_rows_, place.of_group),
        group_stride_(place.group_stride),
        direct_(place.of_group->take(static_cast<size_t>(group_rows_) * dh_.stride())),
        chunk_(place.of_group->take(static_cast<size_t>(chunk_rows_) * chunk_stride_)),
        d_w_(gradient(place, job.d_weight_ih, static_cast<size_t>(wide_) * job.features)),
        d_u_(gradient(place, job.d_weight_hh, static_cast<size_t>(wide_) * job.width)),
        w_(job.d_x.data ? place.shared->take(packed_size(job, wide_, job.features)) : nullptr),
        entries_(reinterpret_cast<Entry*>(place.own->take(chunk_rows_ * sizeof(Entry) / sizeof(float)))),
        strips_(place.own->take(static_cast<size_t>(chunk_rows_) * round_up(wide_, kStrip))),
        panel_(place.own->take(static_cast<size_t>(chunk_rows_) * kPlainWidth)),
        tile_(place.own->take(static_cast<size_t>(group_rows_) * kPlainWidth)),
        pairs_(place.own->take(job.narrow ? narrow_panel(chunk_rows_) : 0)),
        wide_panel_(place.own->take(job.narrow ? static_cast<size_t>(wide_) * kPlainWidth : 0)),
        bfloats_(take_bfloats(place.own, job.narrow ? static_cast<size_t>(group_rows_) * even(wide_) : 0)),
        d_bias_(wide_, place.own),
        d_norm_hh_(wide_, place.own) {}

  void begin_chunks() {
    if (w_) pack_shared(job.weight_ih, wide_, job.features, w_);
    d_bias_.clear();
    d_norm_hh_.clear();
    const Range mine = my_part(rows_in_batch());
    for (int j = mine.begin; j < mine.end; ++j) {
      const int b = batch_of(j);
      dh_.begin(j, b);
      for (int t = length(b); job.d_x.data && t < job.steps; ++t)
        for (int i = 0; i < job.features; ++i) job.d_x.at(b, t)[i] = 0;
    }
  }

  // Room in the chunk for a step's rows; `flush` empties a full one.
  template <class Flush>
  void open_step(int t, int count, Flush flush) {
    if (chunk_count_ + count > chunk_rows_) {
      meet_group();
      flush();
      flushed_ = true;
      meet_group();
      chunk_count_ = 0;
    }
    step_at_ = chunk_count_;
    for (int j = 0; j < count; ++j) entries_[chunk_count_ + j] = {rows_[j].row, rows_[j].b, t};
    chunk_count_ += count;
  }

  float* d_gates(int j) const { return chunk_ + static_cast<size_t>(step_at_ + j) * chunk_stride_; }
  float* d_recurrent(int j) const { return d_gates(j) + recurrent_at_; }
  float* direct(int j) const { return direct_ + static_cast<size_t>(j) * dh_.stride(); }

  // ∂L/∂x_t = ∂L/∂(W x)·W, or ∂L/∂(W x) itself, from which the caller continues.
  void pass_inputs(int t, int count) {
    if (w_)
      multiply(d_gates(0), chunk_stride_, count, w_, wide_, job.features,
               [&](int j, int unit, int width, Vec gradient) { store(job.d_x.at(rows_[j].b, t) + unit, gradient, width); });
    if (job.d_gates_x) {
      const Range mine = my_part(count);
      for (int j = mine.begin; j < mine.end; ++j)
        for (int i = 0; i < wide_; ++i) job.d_gates_x[rows_[j].row * wide_ + i] = d_gates(j)[i];
    }
  }

  // The chunk's columns [first, first + size) in strips, for the outer products that follow.
  void pack_strips(const float* chunk, int stride, int first, int size) {
    const Range mine = my_part(ceil_div(size, kStrip));
    if (job.narrow) {
      const int begin = mine.begin * kStrip, end = mine.end * kStrip < size ? mine.end * kStrip : size;
      return narrow_transposed(chunk, stride, chunk_count_, first + begin, end - begin, narrow_strip(mine.begin),
                               narrow_depth());
    }
    for (int strip = mine.begin; strip < mine.end; ++strip) {
      float* to = strip_at(strip);
      const float* from = chunk + first + strip * kStrip;
      const int inside = size - strip * kStrip < kStrip ? size - strip * kStrip : kStrip;
      if (inside == kStrip) {
        for (int k = 0; k < chunk_count_; ++k, from += stride)
          __builtin_memcpy(to + k * kStrip, from, sizeof(float) * kStrip);
      } else {
        for (int k = 0; k < chunk_count_; ++k, from += stride)
          for (int r = 0; r < kStrip; ++r) to[k * kStrip + r] = r < inside ? from[r] : 0.0f;
      }
    }
  }

  // Adds the packed strips times `source` to a gradient of `size` rows; the first chunk overwrites it.
  void add_outer(int size, Source source, float* total) {
    const Range mine = my_part(ceil_div(size, kStrip));
    for (int column = 0; column < source.width; column += kPlainWidth) {
      const int columns = source.width - column < kPlainWidth ? source.width - column : kPlainWidth;
      const auto row = [&](int k) {
        const Entry& at = entries_[k];
        return column + (source.sequence ? source.sequence->at(at.b, at.t) : source.rows + at.row * source.width);
      };
      for (int k = 0; k < chunk_count_; ++k) {
        const float *from = row(k), *ahead = row(k + kAhead < chunk_count_ ? k + kAhead : k);
        for (int v = 0; v < kPlainWidth; v += kLanes) {
          prefetch(ahead + v);
          store(panel_ + k * kPlainWidth + v, v < columns ? load(from + v, columns - v) : Vec{});
        }
      }
      if (job.narrow) narrow_pairs(panel_, chunk_count_, pairs_);
      for (int strip = mine.begin; strip < mine.end; ++strip) {
        const int rows = size - strip * kStrip < kStrip ? size - strip * kStrip : kStrip;
        float* to = total + static_cast<size_t>(strip) * kStrip * source.width + column;
        if (job.narrow) narrow_outer(strip, to, source.width, rows, columns);
        else outer_product(strip_at(strip), panel_, chunk_count_, to, source.width, rows, columns, flushed_);
      }
    }
  }
  float* strip_at(int strip) const { return strips_ + static_cast<size_t>(strip) * kStrip * chunk_count_; }

  // In bfloat16 a strip's rows lie one after the other, each of all the chunk's steps.
  int narrow_depth() const { return round_up(chunk_rows_, kLanes); }
  Bfloat* narrow_strip(int strip) const {
    return reinterpret_cast<Bfloat*>(strips_) + static_cast<size_t>(strip) * kStrip * narrow_depth();
  }
  void narrow_outer(int strip, float* to, int stride, int rows, int columns) const {
    alignas(64) float sums[kStrip * kPlainWidth];
    narrow_product(narrow_strip(strip), narrow_depth(), rows, pairs_, chunk_count_, sums);
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < columns; v += kLanes) {
        float* at = to + r * stride + v;
        store(at, (flushed_ ? load(at, columns - v) : Vec{}) + load(sums + r * kPlainWidth + v), columns - v);
      }
  }

  // ∂L/∂W and ∂L/∂U of a chunk where all rows of U saw h.
  void add_weight_gradients() {
    pack_strips(chunk_, chunk_stride_, 0, wide_);
    if (d_w_.result) add_outer(wide_, {&job.x, nullptr, job.features}, sums_of(d_w_));
    if (recurrent_at_) pack_strips(chunk_, chunk_stride_, recurrent_at_, wide_);
    add_outer(wide_, {nullptr, seen_rows(), job.width}, sums_of(d_u_));
  }
  const float* seen_rows() const { return job.seen ? job.seen : job.h.entering; }

  // A weight's gradient: group 0 sums it up in the result itself, the others at the same place in their own memory.
  struct Gradient {
    float* result = nullptr;
    float* own = nullptr;  // null with one group
    size_t size = 0;
  };
  static Gradient gradient(const Place& place, float* result, size_t size) {
    return {result, result && place.plan.groups > 1 ? place.of_group->take(size) : nullptr, size};
  }
  float* sums_of(const Gradient& gradient) const { return group_ == 0 ? gradient.result : gradient.own; }

  // Adds the other groups' sums to group 0's, each thread its part of the matrix. Everyone has met before.
  void gather(const Gradient& gradient) const {
    if (!gradient.own) return;
    const Range part = part_of(static_cast<int>(gradient.size), id_, plan_.threads());
    for (int group = 1; group < plan_.groups; ++group) {
      const float* from = gradient.own + (group - group_) * static_cast<ptrdiff_t>(group_stride_);
      for (int i = part.begin; i < part.end; ++i) gradient.result[i] += from[i];
    }
  }
  // A group whose sequences are all empty has flushed nothing: its gradients are zero.
  void clear_unless_flushed(const Gradient& gradient) const {
    if (flushed_ || !gradient.result) return;
    const Range part = my_part(static_cast<int>(gradient.size));
    for (int i = part.begin; i < part.end; ++i) sums_of(gradient)[i] = 0;
  }

  // After the last step: the last chunk, then all groups' sums.
  template <class Flush>
  void end_chunks(Flush flush) {
    meet_group();
    if (chunk_count_ > 0) {
      flush();
      flushed_ = true;
    }
    clear_unless_flushed(d_w_);
    clear_unless_flushed(d_u_);
    meet_everyone();
    gather(d_w_);
    gather(d_u_);
    const Range mine = my_part(rows_in_batch());
    for (int j = mine.begin; j < mine.end; ++j) dh_.end(j, batch_of(j));
  }

  // Threads add up what they have summed, one after the other.
  template <class Add>
  void in_turn(Add add) {
    for (int turn = 0; turn < plan_.threads(); ++turn) {
      if (turn == id_) add();
      meet_everyone();
    }
  }

  // Back through LN of some of a row's sums.
  void norm_row(int j, int first, int size, int slot, const float* gradient) {
    const int64_t row = rows_[j].row;
    const float* stats = job.stats + row * 4 + 2 * slot;
    norm_backward(job.raw + row * wide_ + first, size, {stats[0], stats[1]}, job.norm_hh + first, gradient,
                  d_recurrent(j) + first, [&](int i, int count, Vec v) { d_norm_hh_.add(first + i, count, v); });
  }

  // Units of h that are this member's, a multiple of a panel.
  Range my_columns(int columns) const {
    const Range panels = my_part(ceil_div(columns, kPlainWidth));
    const int end = panels.end * kPlainWidth;
    return {panels.begin * kPlainWidth, end < columns ? end : columns};
  }

  // out(j, unit, count, Σ_k rows[j][k]·matrix[k][unit]) for this member's columns of a packed matrix.
  template <class Out>
  void multiply(const float* rows, int stride, int count, const float* packed, int depth, int columns, Out out) {
    const Range mine = my_part(ceil_div(columns, kPlainWidth));
    if (job.narrow) narrow_rows(rows, stride, count, depth, bfloats_);
    for (int panel = mine.begin; panel < mine.end; ++panel) {
      const float* of_panel = packed + panel * panel_size(job, depth);
      if (job.narrow) narrow_product(bfloats_, even(depth), count, of_panel, depth, tile_);
      else product<kPlainVecs>(rows, stride, count, of_panel, depth, tile_);
      const int first = panel * kPlainWidth;
      for (int j = 0; j < count; ++j)
        for (int v = 0; v < kPlainVecs && first + v * kLanes < columns; ++v)
          out(j, first + v * kLanes, columns - first - v * kLanes, load(tile_ + j * kPlainWidth + v * kLanes));
    }
  }

  // The gradient at the step's own h: zoneout's share of the gradient at the state after it.
  [[gnu::always_inline]] Vec own_share(const RowAt& at, int t, int j, int unit, int count) {
    Vec gradient = load(dh_.at(j) + unit) + load(job.d_output.at(at.b, t) + unit, count);
    dh_.show(at, unit, count, gradient);
    if (!has_keep(job.h)) return gradient;
    const Vec keep = keep_share(job.h, at.b, t, unit, count);
    store(direct(j) + unit, keep * gradient);
    return (1.0f - keep) * gradient;
  }

  // ∂L/∂h_{t-1} = mask∘(∂L/∂(U h)·U) + the part past the product.
  void pass_hidden(const RowAt& at, int j, int unit, int count, Vec through_product, bool with_direct) {
    if (job.hidden_mask)
      through_product *= load(job.hidden_mask + static_cast<size_t>(at.b) * job.width + unit, count);
    if (with_direct) through_product += load(direct(j) + unit);
    dh_.pass(at, j, unit, count, through_product);
  }

  // Packs all columns of a matrix (depth, columns); every thread of the scan does its part.
  void pack_shared(const float* matrix, int depth, int columns, float* packed) const {
    const Range mine = part_of(ceil_div(columns, kPlainWidth), id_, plan_.threads());
    for (int panel = mine.begin; panel < mine.end; ++panel)
      put_panel(packed + panel * panel_size(job, depth), depth, wide_panel_, [&](float* to) {
        pack_columns(matrix, columns, depth, kPlainWidth, panel * kPlainWidth, to);
      });
  }

  static size_t packed_size(const ScanJob& job, int depth, int columns) {
    return panel_size(job, depth) * ceil_div(columns, kPlainWidth);
  }

  static constexpr int kAhead = 8;    // rows on their way while one is copied
  static constexpr int kChunk = 256;  // rows: deep enough for the outer product, small enough for the cache
  struct Entry {
    int64_t row;
    int b, t;
  };
  const int hidden_, wide_, recurrent_at_, chunk_stride_, chunk_rows_;
  GradientTrack dh_;
  const size_t group_stride_;
  float *direct_, *chunk_;
  const Gradient d_w_, d_u_;
  float* w_;
  Entry* entries_;
  float *strips_, *panel_, *tile_;
  float *pairs_, *wide_panel_;  // in bfloat16
  Bfloat* bfloats_;
  Sums d_bias_, d_norm_hh_;
  int chunk_count_ = 0, step_at_ = 0;
  bool flushed_ = false;
};

static Plan scan_plan(const ScanJob& job, int threads) {
  const double weights = 1.0 * traits_of(job.kind).gates * job.hidden * job.width;
  const int panels = ceil_div(job.width, kPlainWidth);  // the coarser of the ways in which threads share the units
  return make_plan(threads, job.batch, panels, 2.0 * job.batch * weights, job.steps);
}

// Every thread of a scan runs its own Cell over all steps; `Cell` lays out its memory in its constructor.
template <class Cell>
static void run(const ScanJob& job, int threads) {
  const Plan plan = scan_plan(job, threads);
  Arena shared(nullptr), of_group(nullptr), own(nullptr);
  Cell(Place{job, plan, 0, nullptr, nullptr, &shared, &of_group, &own});
  const auto body = [&](Workspace space) {
    Cell cell(Place{job, plan, space.id, space.everyone, space.of_group, &space.shared, &space.group, &space.own,
                    of_group.used()});
    cell.prepare();
    const bool descending = job.reverse != Cell::kBackward;
    for (int s = 0; s < job.steps; ++s) cell.step(descending ? job.steps - 1 - s : s, s & 1);
    cell.finish();
  };
  if (!launch(plan, shared.used(), of_group.used(), own.used(), body)) run<Cell>(job, 1);
}

}  // namespace unrolled::UNROLLED_NAMESPACE
