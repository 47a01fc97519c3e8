// The vanilla cell, h = φ(W x + U h + b) with φ tanh or ReLU: equations in unrolled/cells/rnn.py.
#pragma once

#include "recurrence/norm.h"
#include "recurrence/scan.h"

namespace unrolled::UNROLLED_NAMESPACE {

static inline Plan rnn_plan(const ScanJob& job, int threads) {
  const double weights = 1.0 * job.hidden * job.hidden;
  const int panels = ceil_div(job.hidden, kPlainWidth);
  return make_plan(threads, job.batch, panels, 2.0 * job.batch * weights, job.steps);
}

class RnnForward : public ForwardScan {
 public:
  static Plan plan(const ScanJob& job, int threads) { return rnn_plan(job, threads); }

  explicit RnnForward(const Place& place)
      : ForwardScan(place, 1),
        hidden_(job.hidden),
        panels_(ceil_div(hidden_, kPlainWidth)),
        w_(place.shared->take(static_cast<size_t>(panels_) * kPlainWidth * job.features)),
        u_(place.shared->take(static_cast<size_t>(panels_) * kPlainWidth * hidden_)),
        tile_(place.own->take(static_cast<size_t>(group_rows_) * kPlainWidth)) {
    if (job.norm_hh) {
      raw_ = place.of_group->take(static_cast<size_t>(group_rows_) * hidden_ + kLanes);
      sums_ = place.own->take(hidden_ + kLanes);
    }
  }

  void prepare() {
    if (job.x.data) pack_shared(job.weight_ih, hidden_, job.features, 1, kPlainVecs, panels_, w_);
    pack_shared(job.weight_hh, hidden_, hidden_, 1, kPlainVecs, panels_, u_);
    add_biases();
    begin_rows([&](int j, int b, int64_t row, bool reset) { h_.begin(j, b, row, reset); });
    clear_padding();
    meet_everyone();
  }

  void step(int t, int parity) {
    const int count = look_up_rows(t);
    if (count == 0) return;
    look_up_inputs(t, count);
    const Range mine = my_part(panels_);
    for (int panel = mine.begin; panel < mine.end; ++panel) {
      const float* u = u_ + static_cast<size_t>(panel) * kPlainWidth * hidden_;
      if (job.x.data) {
        product<kPlainVecs>(x_rows_, x_stride_, count, w_ + static_cast<size_t>(panel) * kPlainWidth * job.features,
                            job.features, tile_);
        if (job.norm_hh)
          each_of_tile(panel, count, [&](int j, int unit, Vec total) {
            store(x_sums_ + static_cast<size_t>(j) * hidden_ + unit, total, hidden_ - unit);
          });
      }
      if (job.x.data && !job.norm_hh)
        product<kPlainVecs, true>(h_.seen(parity, 0), h_.stride(), count, u, hidden_, tile_);
      else
        product<kPlainVecs>(h_.seen(parity, 0), h_.stride(), count, u, hidden_, tile_);
      each_of_tile(panel, count, [&](int j, int unit, Vec total) {
        if (job.norm_hh) store(raw_row(j) + unit, total, hidden_ - unit);
        else activate(t, parity, j, unit, total);
      });
    }
    if (job.norm_hh) {
      meet_group();
      const Range rows = my_part(count);
      for (int j = rows.begin; j < rows.end; ++j) normed_row(t, parity, j);
    }
    meet_group();
  }

  void finish() {}

 private:
  float* raw_row(int j) const {
    return job.raw ? job.raw + rows_[j].row * hidden_ : raw_ + static_cast<size_t>(j) * hidden_;
  }

  void normed_row(int t, int parity, int j) {
    const NormStats stats = norm_stats(raw_row(j), hidden_);
    normalize(raw_row(j), hidden_, stats, job.norm_hh, nullptr, sums_);
    for (int unit = 0; unit < hidden_; unit += kLanes) activate(t, parity, j, unit, load(sums_ + unit));
    if (job.stats) {
      float* to = job.stats + rows_[j].row * 4;
      to[0] = stats.mean, to[1] = stats.inverse;
    }
  }

  template <class Each>
  void each_of_tile(int panel, int count, Each each) const {
    for (int j = 0; j < count; ++j)
      for (int v = 0; v < kPlainVecs && panel * kPlainWidth + v * kLanes < hidden_; ++v)
        each(j, panel * kPlainWidth + v * kLanes, load(tile_ + j * kPlainWidth + v * kLanes));
  }

  void activate(int t, int parity, int j, int unit, Vec total) {
    const int count = hidden_ - unit;
    total += x_sums(t).from_unit(unit).at(j, 0, count) + bias(0, unit);
    const Vec h = job.kind == static_cast<int>(CellKind::rnn_relu) ? relu(total) : tanh(total);
    if (job.save) store(job.gates + rows_[j].row * hidden_ + unit, h, count);
    h_.leave(rows_[j], t, parity, j, unit, count, load(h_.entering(parity, j) + unit), h);
  }

  const int hidden_, panels_;
  float *w_, *u_, *tile_;
  float *raw_ = nullptr, *sums_ = nullptr;  // with layer norm
};

class RnnBackward : public BackwardScan {
 public:
  static Plan plan(const ScanJob& job, int threads) { return rnn_plan(job, threads); }

  explicit RnnBackward(const Place& place)
      : BackwardScan(place, 1, place.job.norm_hh != nullptr),
        hidden_(job.hidden),
        u_(place.shared->take(packed_size(job, hidden_, hidden_))),
        d_bias_(hidden_, place.own),
        d_norm_hh_(hidden_, place.own) {}

  void prepare() {
    pack_shared(job.weight_hh, hidden_, hidden_, u_);
    begin_chunks();
    d_bias_.clear();
    d_norm_hh_.clear();
    const Range mine = my_part(rows_in_batch());
    for (int j = mine.begin; j < mine.end; ++j) dh_.begin(j, batch_of(j));
    meet_everyone();
  }

  void step(int t, int) {
    const int count = look_up_rows(t);
    if (count == 0) return;
    open_step(t, count, [&] { add_weight_gradients(); });
    if (job.norm_hh) {
      const Range rows = my_part(count);
      for (int j = rows.begin; j < rows.end; ++j) {
        for (int unit = 0; unit < hidden_; unit += kLanes) activation(t, unit, {j, j + 1});
        norm_row(j);
      }
    } else {
      const Range units = my_columns(hidden_);
      for (int unit = units.begin; unit < units.end; unit += kLanes) activation(t, unit, {0, count});
    }
    meet_group();
    pass_inputs(t, count);
    const bool with_direct = has_keep(job.h);
    multiply(d_recurrent(0), chunk_stride_, count, u_, hidden_, hidden_,
             [&](int j, int unit, int width, Vec gradient) {
               pass_hidden(rows_[j], j, unit, width, gradient, with_direct);
             });
    if (job.norm_hh) meet_group();  // the next step reads units that others wrote
  }

  void finish() {
    end_chunks([&] { add_weight_gradients(); });
    const Range mine = my_part(rows_in_batch());
    for (int j = mine.begin; j < mine.end; ++j) dh_.end(j, batch_of(j));
    for (int turn = 0; turn < plan_.threads(); ++turn) {
      if (turn == id_) {
        d_bias_.add_to(job.d_bias_ih);
        d_bias_.add_to(job.d_bias_hh);
        d_norm_hh_.add_to(job.d_norm_hh);
      }
      meet_everyone();
    }
  }

 private:
  void activation(int t, int unit, Range rows) {
    const int count = hidden_ - unit;
    Vec d_bias = {};
    for (int j = rows.begin; j < rows.end; ++j) {
      const RowAt& at = rows_[j];
      const Vec h = load(job.gates + at.row * hidden_ + unit, count);
      Vec gradient = own_share(at, t, j, unit, count);
      if (job.kind == static_cast<int>(CellKind::rnn_relu)) gradient = h > Vec{} ? gradient : Vec{};
      else gradient *= 1.0f - h * h;
      d_bias += gradient;
      store(d_gates(j) + unit, gradient, count);
    }
    d_bias_.add(unit, count, d_bias);
  }

  void norm_row(int j) {
    const int64_t row = rows_[j].row;
    norm_backward(job.raw + row * hidden_, hidden_, {job.stats[row * 4], job.stats[row * 4 + 1]}, job.norm_hh, d_gates(j),
                  d_recurrent(j), [&](int i, int count, Vec v) { d_norm_hh_.add(i, count, v); });
  }

  const int hidden_;
  float* u_;
  Sums d_bias_, d_norm_hh_;
};

}  // namespace unrolled::UNROLLED_NAMESPACE
