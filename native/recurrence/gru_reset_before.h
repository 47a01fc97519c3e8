// The scan of the GRU that resets before its second product (cells/gru.h).
#pragma once

#include "cells/gru.h"
#include "recurrence/gated.h"

namespace unrolled::UNROLLED_NAMESPACE {

class GruResetBeforeForward : public ForwardScan {
 public:
  explicit GruResetBeforeForward(const Place& place)
      : ForwardScan(place),
        panels_rz_(ceil_div(hidden_, 2 * kLanes)),
        panels_n_(ceil_div(hidden_, kPlainWidth)),
        w_rz_(place.shared->take(static_cast<size_t>(panels_rz_) * kPlainWidth * job.features)),
        w_n_(place.shared->take(static_cast<size_t>(panels_n_) * kPlainWidth * job.features)),
        u_rz_(place.shared->take(static_cast<size_t>(panels_rz_) * kPlainWidth * hidden_)),
        u_n_(place.shared->take(static_cast<size_t>(panels_n_) * kPlainWidth * hidden_)),
        remembered_(place.of_group->take(static_cast<size_t>(group_rows_) * h_.stride())),
        update_(place.of_group->take(static_cast<size_t>(group_rows_) * h_.stride())),
        tile_(place.own->take(static_cast<size_t>(group_rows_) * kPlainWidth)) {}

  void prepare() {
    if (job.x.data) {
      const float* rows_of_n = job.weight_ih + 2 * static_cast<size_t>(hidden_) * job.features;
      pack_shared(job.weight_ih, hidden_, job.features, 2, 2, panels_rz_, w_rz_);
      pack_shared(rows_of_n, hidden_, job.features, 1, kPlainVecs, panels_n_, w_n_);
    }
    pack_shared(job.weight_hh, hidden_, hidden_, 2, 2, panels_rz_, u_rz_);
    pack_shared(job.weight_hh + 2 * static_cast<size_t>(hidden_) * hidden_, hidden_, hidden_, 1, kPlainVecs, panels_n_,
                u_n_);
    begin_rows([&](int j, int b, int64_t row, bool reset) { h_.begin(j, b, row, reset); });
  }

  void step(int t, int parity) {
    const int count = look_up_rows(t);
    if (count == 0) return;
    look_up_inputs(t, count);
    const Range rows = my_part(count);
    gates_r_z(t, parity, count);
    meet_group();
    if (job.norm_hh) {
      for (int j = rows.begin; j < rows.end; ++j) {
        norm_row(j, 0, 2 * hidden_, 0);
        for (int unit = 0; unit < hidden_; unit += kLanes)
          reset_and_update(t, parity, j, unit, load(sums_ + unit), load(sums_ + hidden_ + unit));
      }
      meet_group();
    }
    gate_n(t, parity, count);
    meet_group();
    if (job.norm_hh) {
      for (int j = rows.begin; j < rows.end; ++j) {
        norm_row(j, 2 * hidden_, hidden_, 1);
        for (int unit = 0; unit < hidden_; unit += kLanes)
          candidate(t, parity, j, unit, load(sums_ + 2 * hidden_ + unit));
      }
      meet_group();
    }
  }

 private:
  float* remembered(int j) const { return remembered_ + static_cast<size_t>(j) * h_.stride(); }
  float* update(int j) const { return update_ + static_cast<size_t>(j) * h_.stride(); }

  // W x and U h of one panel: into one tile, or, for layer norm, W x apart into x_sums_.
  template <class KeepX>
  void sums(const float* w, const float* u, const float* of_h, int panel, int count, KeepX keep_x) {
    const float* u_panel = u + static_cast<size_t>(panel) * kPlainWidth * hidden_;
    if (job.x.data) {
      product<4>(x_rows_, x_stride_, count, w + static_cast<size_t>(panel) * kPlainWidth * job.features,
                 job.features, tile_);
      if (job.norm_hh) keep_x();
    }
    if (job.x.data && !job.norm_hh) product<4, true>(of_h, h_.stride(), count, u_panel, hidden_, tile_);
    else product<4>(of_h, h_.stride(), count, u_panel, hidden_, tile_);
  }

  // each(j, unit, r's, z's) of a tile of two gates and two vectors of units
  template <class Each>
  void each_r_z(int panel, int count, Each each) const {
    for (int block = 0; block < 2 && (panel * 2 + block) * kLanes < hidden_; ++block)
      for (int j = 0; j < count; ++j) {
        const float* from = tile_ + j * kPlainWidth + block * kLanes;
        each(j, (panel * 2 + block) * kLanes, load(from), load(from + 2 * kLanes));
      }
  }
  template <class Each>
  void each_n(int panel, int count, Each each) const {
    for (int j = 0; j < count; ++j)
      for (int v = 0; v < kPlainVecs && panel * kPlainWidth + v * kLanes < hidden_; ++v)
        each(j, panel * kPlainWidth + v * kLanes, load(tile_ + j * kPlainWidth + v * kLanes));
  }

  void gates_r_z(int t, int parity, int count) {
    const Range mine = my_part(panels_rz_);
    for (int panel = mine.begin; panel < mine.end; ++panel) {
      const auto keep = [&](auto row) {
        return [this, row](int j, int unit, Vec r, Vec z) {
          store(row(j) + unit, r, hidden_ - unit);
          store(row(j) + hidden_ + unit, z, hidden_ - unit);
        };
      };
      sums(w_rz_, u_rz_, h_.seen(parity, 0), panel, count,
           [&] { each_r_z(panel, count, keep([this](int j) { return x_row(j); })); });
      if (job.norm_hh) each_r_z(panel, count, keep([this](int j) { return raw_row(j); }));
      else
        each_r_z(panel, count, [&](int j, int unit, Vec r, Vec z) { reset_and_update(t, parity, j, unit, r, z); });
    }
  }

  void reset_and_update(int t, int parity, int j, int unit, Vec sum_r, Vec sum_z) {
    const int count = hidden_ - unit;
    const SumsAt of_x = x_sums(t).from_unit(unit);
    Vec r = of_x.at(j, 0, count) + sum_r + bias(0, unit), z = of_x.at(j, 1, count) + sum_z + bias(1, unit);
    const Vec seen = GruResetBefore::reset(r, z, load(h_.seen(parity, j) + unit));
    store(remembered(j) + unit, seen);
    store(update(j) + unit, z);
    if (job.save) {
      float* to = job.gates + rows_[j].row * 3 * hidden_ + unit;
      store(to, r, count);
      store(to + hidden_, z, count);
      store(job.candidate + rows_[j].row * hidden_ + unit, seen, count);
    }
  }

  void gate_n(int t, int parity, int count) {
    const Range mine = my_part(panels_n_);
    for (int panel = mine.begin; panel < mine.end; ++panel) {
      const auto keep = [&](auto row) {
        return [this, row](int j, int unit, Vec total) { store(row(j) + 2 * hidden_ + unit, total, hidden_ - unit); };
      };
      sums(w_n_, u_n_, remembered_, panel, count,
           [&] { each_n(panel, count, keep([this](int j) { return x_row(j); })); });
      if (job.norm_hh) each_n(panel, count, keep([this](int j) { return raw_row(j); }));
      else each_n(panel, count, [&](int j, int unit, Vec total) { candidate(t, parity, j, unit, total); });
    }
  }

  void candidate(int t, int parity, int j, int unit, Vec total) {
    const int count = hidden_ - unit;
    const Vec old = load(h_.entering(parity, j) + unit);
    Vec n = x_sums(t).from_unit(unit).at(j, 2, count) + total + bias(2, unit);
    const Vec h = GruResetBefore::candidate(load(update(j) + unit), n, old);
    if (job.save) store(job.gates + rows_[j].row * 3 * hidden_ + 2 * hidden_ + unit, n, count);
    h_.leave(rows_[j], t, parity, j, unit, count, old, h);
  }

  const int panels_rz_, panels_n_;
  float *w_rz_, *w_n_, *u_rz_, *u_n_;
  float *remembered_, *update_;  // r∘h and z of this step
  float* tile_;
};

class GruResetBeforeBackward : public BackwardScan {
 public:
  explicit GruResetBeforeBackward(const Place& place)
      : BackwardScan(place, place.job.norm_hh != nullptr),
        u_rz_(place.shared->take(packed_size(job, 2 * hidden_, hidden_))),
        u_n_(place.shared->take(packed_size(job, hidden_, hidden_))),
        d_remembered_(place.of_group->take(static_cast<size_t>(group_rows_) * dh_.stride())) {}

  void prepare() {
    pack_shared(job.weight_hh, 2 * hidden_, hidden_, u_rz_);
    pack_shared(job.weight_hh + 2 * static_cast<size_t>(hidden_) * hidden_, hidden_, hidden_, u_n_);
    begin_chunks();
    meet_everyone();
  }

  void step(int t, int) {
    const int count = look_up_rows(t);
    if (count == 0) return;
    open_step(t, count, [&] { flush(); });
    const Range rows = my_part(count), units = my_columns(hidden_);
    if (job.norm_hh) {
      for (int j = rows.begin; j < rows.end; ++j) {
        for (int unit = 0; unit < hidden_; unit += kLanes) update_candidate(t, unit, {j, j + 1});
        norm_row(j, 2 * hidden_, hidden_, 1, d_gates(j) + 2 * hidden_);
      }
    } else {
      for (int unit = units.begin; unit < units.end; unit += kLanes) update_candidate(t, unit, {0, count});
    }
    meet_group();
    multiply(d_recurrent(0) + 2 * hidden_, chunk_stride_, count, u_n_, hidden_, hidden_,
             [&](int j, int unit, int, Vec gradient) { store(d_remembered(j) + unit, gradient); });
    if (job.norm_hh) {
      meet_group();
      for (int j = rows.begin; j < rows.end; ++j) {
        for (int unit = 0; unit < hidden_; unit += kLanes) reset_gate(unit, {j, j + 1});
        norm_row(j, 0, 2 * hidden_, 0, d_gates(j));
      }
    } else {
      for (int unit = units.begin; unit < units.end; unit += kLanes) reset_gate(unit, {0, count});
    }
    meet_group();
    pass_inputs(t, count);
    multiply(d_recurrent(0), chunk_stride_, count, u_rz_, 2 * hidden_, hidden_,
             [&](int j, int unit, int width, Vec gradient) {
               pass_hidden(rows_[j], j, unit, width, gradient + load(d_remembered(j) + unit), true);
             });
    if (job.norm_hh) meet_group();  // the next step reads units that others wrote
  }

  void finish() {
    end_chunks([&] { flush(); });
    in_turn([&] {
      d_bias_.add_to(job.d_bias_ih);
      d_bias_.add_to(job.d_bias_hh);
      d_norm_hh_.add_to(job.d_norm_hh);
    });
  }

 private:
  // U_r and U_z saw h, U_n saw r∘h.
  void flush() {
    if (d_w_.result) {
      pack_strips(chunk_, chunk_stride_, 0, wide_);
      add_outer(wide_, {&job.x, nullptr, job.features}, sums_of(d_w_));
    }
    pack_strips(chunk_, chunk_stride_, recurrent_at_, 2 * hidden_);
    add_outer(2 * hidden_, {nullptr, seen_rows(), hidden_}, sums_of(d_u_));
    pack_strips(chunk_, chunk_stride_, recurrent_at_ + 2 * hidden_, hidden_);
    add_outer(hidden_, {nullptr, job.candidate, hidden_}, sums_of(d_u_) + 2 * static_cast<size_t>(hidden_) * hidden_);
  }

  const float* saved(const RowAt& at) const { return job.gates + at.row * 3 * hidden_; }
  float* d_remembered(int j) const { return d_remembered_ + static_cast<size_t>(j) * dh_.stride(); }

  void update_candidate(int t, int unit, Range rows) {
    const int count = hidden_ - unit;
    Vec sum_z = {}, sum_n = {};
    for (int j = rows.begin; j < rows.end; ++j) {
      const RowAt& at = rows_[j];
      const Vec z = load(saved(at) + hidden_ + unit, count), n = load(saved(at) + 2 * hidden_ + unit, count);
      const Vec old = load(job.h.entering + at.row * hidden_ + unit, count);
      const Vec gradient = own_share(at, t, j, unit, count);
      const Vec kept = has_keep(job.h) ? load(direct(j) + unit) : Vec{};
      const auto d = GruResetBefore::update_backward(z, n, old, gradient);
      store(direct(j) + unit, kept + d.h);
      store(d_gates(j) + hidden_ + unit, d.z, count);
      store(d_gates(j) + 2 * hidden_ + unit, d.n, count);
      sum_z += d.z, sum_n += d.n;
    }
    d_bias_.add(hidden_ + unit, count, sum_z);
    d_bias_.add(2 * hidden_ + unit, count, sum_n);
  }

  // From the gradient at r∘h: at r before its activation, and (in place) at h.
  void reset_gate(int unit, Range rows) {
    const int count = hidden_ - unit;
    Vec sum_r = {};
    for (int j = rows.begin; j < rows.end; ++j) {
      const RowAt& at = rows_[j];
      const Vec r = load(saved(at) + unit, count), seen = load(seen_rows() + at.row * hidden_ + unit, count);
      const auto d = GruResetBefore::reset_backward(r, seen, load(d_remembered(j) + unit));
      store(d_remembered(j) + unit, d.h);
      store(d_gates(j) + unit, d.r, count);
      sum_r += d.r;
    }
    d_bias_.add(unit, count, sum_r);
  }

  float *u_rz_, *u_n_;
  float* d_remembered_;
};

template <>
struct ScanOf<GruResetBefore> {
  using Forward = GruResetBeforeForward;
  using Backward = GruResetBeforeBackward;
};

}  // namespace unrolled::UNROLLED_NAMESPACE
