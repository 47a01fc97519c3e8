// GRU in both conventions: equations in unrolled/cells/gru.py. Gates in torch's order: r, z, n; z keeps the old state.
#pragma once

#include "recurrence/norm.h"
#include "recurrence/scan.h"

namespace unrolled::UNROLLED_NAMESPACE {

static inline Plan gru_plan(const ScanJob& job, int threads) {
  const double weights = 3.0 * job.hidden * job.hidden;
  const int panels = ceil_div(job.hidden, kPlainWidth);
  return make_plan(threads, job.batch, panels, 2.0 * job.batch * weights, job.steps);
}

// What both conventions share on the way forward.
class GruForward : public ForwardScan {
 public:
  static Plan plan(const ScanJob& job, int threads) { return gru_plan(job, threads); }
  void finish() {}

 protected:
  explicit GruForward(const Place& place) : ForwardScan(place, 3), hidden_(job.hidden) {
    if (job.norm_hh) {
      raw_ = place.of_group->take(static_cast<size_t>(group_rows_) * 3 * hidden_ + kLanes);
      sums_ = place.own->take(3 * hidden_ + kLanes);
    }
  }

  float* raw_row(int j) const {
    return job.raw ? job.raw + rows_[j].row * 3 * hidden_ : raw_ + static_cast<size_t>(j) * 3 * hidden_;
  }

  // LN of some of a row's sums, into sums_; `slot` says which of the row's two norms.
  void norm(int j, int first, int size, int slot) {
    const NormStats stats = norm_stats(raw_row(j) + first, size);
    normalize(raw_row(j) + first, size, stats, job.norm_hh + first, nullptr, sums_ + first);
    if (job.stats) {
      float* to = job.stats + rows_[j].row * 4 + 2 * slot;
      to[0] = stats.mean, to[1] = stats.inverse;
    }
  }

  void leave(int t, int parity, int j, int unit, Vec z, Vec n) {
    const Vec old = load(h_.entering(parity, j) + unit);
    h_.leave(rows_[j], t, parity, j, unit, hidden_ - unit, old, (1.0f - z) * n + z * old);
  }

  const int hidden_;
  float *raw_ = nullptr, *sums_ = nullptr;  // with layer norm
};

class GruAfterForward : public GruForward {
 public:
  explicit GruAfterForward(const Place& place)
      : GruForward(place),
        panels_(ceil_div(hidden_, kLanes)),
        w_(place.shared->take(static_cast<size_t>(panels_) * kTile * job.features)),
        u_(place.shared->take(static_cast<size_t>(panels_) * kTile * hidden_)),
        x_tile_(place.own->take(static_cast<size_t>(group_rows_) * kTile)),
        tile_(place.own->take(static_cast<size_t>(group_rows_) * kTile)) {}

  void prepare() {
    if (job.x.data) pack_shared(job.weight_ih, hidden_, job.features, 3, 1, panels_, w_);
    add_biases();
    pack_shared(job.weight_hh, hidden_, hidden_, 3, 1, panels_, u_);
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
      const int unit = panel * kLanes;
      if (job.x.data)
        product<3>(x_rows_, x_stride_, count, w_ + static_cast<size_t>(panel) * kTile * job.features, job.features,
                   x_tile_);
      product<3>(h_.seen(parity, 0), h_.stride(), count, u_ + static_cast<size_t>(panel) * kTile * hidden_, hidden_,
                 tile_);
      if (!job.norm_hh) {
        const SumsAt of_x = job.x.data ? SumsAt{x_tile_, kTile, kLanes} : x_sums(t).from_unit(unit);
        gates(t, parity, unit, {0, count}, {tile_, kTile, kLanes}, of_x);
        continue;
      }
      for (int j = 0; j < count; ++j)
        for (int gate = 0; gate < 3; ++gate) {
          const int at = gate * hidden_ + unit;
          store(raw_row(j) + at, load(tile_ + j * kTile + gate * kLanes), hidden_ - unit);
          if (job.x.data)
            store(x_sums_ + static_cast<size_t>(j) * 3 * hidden_ + at, load(x_tile_ + j * kTile + gate * kLanes),
                  hidden_ - unit);
        }
    }
    if (job.norm_hh) {
      meet_group();
      const Range rows = my_part(count);
      for (int j = rows.begin; j < rows.end; ++j) {
        norm(j, 0, 3 * hidden_, 0);
        for (int unit = 0; unit < hidden_; unit += kLanes)
          gates(t, parity, unit, {j, j + 1}, {sums_ + unit, 0, hidden_}, x_sums(t).from_unit(unit));
      }
    }
    meet_group();
  }

 private:
  static constexpr int kTile = 3 * kLanes;  // sums of a row in a tile: three gates of one vector of units

  void gates(int t, int parity, int unit, Range rows, SumsAt of_h, SumsAt of_x) {
    const int count = hidden_ - unit;
    const Vec bias_r = bias(0, unit), bias_z = bias(1, unit);
    const Vec bias_xn = job.bias_ih ? load(job.bias_ih + 2 * hidden_ + unit, count) : Vec{};
    const Vec bias_hn = job.bias_hh ? load(job.bias_hh + 2 * hidden_ + unit, count) : Vec{};
    for (int j = rows.begin; j < rows.end; ++j) {
      const Vec r = sigmoid(of_x.at(j, 0, count) + of_h.at(j, 0, count) + bias_r);
      const Vec z = sigmoid(of_x.at(j, 1, count) + of_h.at(j, 1, count) + bias_z);
      const Vec candidate = of_h.at(j, 2, count) + bias_hn;
      const Vec n = tanh(of_x.at(j, 2, count) + bias_xn + r * candidate);
      if (job.save) {
        float* to = job.gates + rows_[j].row * 3 * hidden_ + unit;
        store(to, r, count);
        store(to + hidden_, z, count);
        store(to + 2 * hidden_, n, count);
        store(job.candidate + rows_[j].row * hidden_ + unit, candidate, count);
      }
      leave(t, parity, j, unit, z, n);
    }
  }

  const int panels_;
  float *w_, *u_, *x_tile_, *tile_;
};

class GruBeforeForward : public GruForward {
 public:
  explicit GruBeforeForward(const Place& place)
      : GruForward(place),
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
    add_biases();
    pack_shared(job.weight_hh, hidden_, hidden_, 2, 2, panels_rz_, u_rz_);
    pack_shared(job.weight_hh + 2 * static_cast<size_t>(hidden_) * hidden_, hidden_, hidden_, 1, kPlainVecs, panels_n_,
                u_n_);
    begin_rows([&](int j, int b, int64_t row, bool reset) { h_.begin(j, b, row, reset); });
    clear_padding();
    meet_everyone();
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
        norm(j, 0, 2 * hidden_, 0);
        for (int unit = 0; unit < hidden_; unit += kLanes)
          reset_and_update(t, parity, j, unit, load(sums_ + unit), load(sums_ + hidden_ + unit));
      }
      meet_group();
    }
    gate_n(t, parity, count);
    meet_group();
    if (job.norm_hh) {
      for (int j = rows.begin; j < rows.end; ++j) {
        norm(j, 2 * hidden_, hidden_, 1);
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
  float* x_row(int j) const { return x_sums_ + static_cast<size_t>(j) * 3 * hidden_; }

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
    const Vec r = sigmoid(of_x.at(j, 0, count) + sum_r + bias(0, unit));
    const Vec z = sigmoid(of_x.at(j, 1, count) + sum_z + bias(1, unit));
    const Vec seen = r * load(h_.seen(parity, j) + unit);
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
    const Vec n = tanh(x_sums(t).from_unit(unit).at(j, 2, count) + total + bias(2, unit));
    if (job.save) store(job.gates + rows_[j].row * 3 * hidden_ + 2 * hidden_ + unit, n, count);
    leave(t, parity, j, unit, load(update(j) + unit), n);
  }

  const int panels_rz_, panels_n_;
  float *w_rz_, *w_n_, *u_rz_, *u_n_;
  float *remembered_, *update_;  // r∘h and z of this step
  float* tile_;
};

// What both conventions share on the way back.
class GruBackward : public BackwardScan {
 public:
  static Plan plan(const ScanJob& job, int threads) { return gru_plan(job, threads); }

  void finish() {
    end_chunks([&] { flush(); });
    const Range mine = my_part(rows_in_batch());
    for (int j = mine.begin; j < mine.end; ++j) dh_.end(j, batch_of(j));
    for (int turn = 0; turn < plan_.threads(); ++turn) {
      if (turn == id_) {
        d_bias_ih_.add_to(job.d_bias_ih);
        d_bias_hh_.add_to(job.d_bias_hh);
        d_norm_hh_.add_to(job.d_norm_hh);
      }
      meet_everyone();
    }
  }

 protected:
  GruBackward(const Place& place, bool separate)
      : BackwardScan(place, 3, separate),
        hidden_(job.hidden),
        d_bias_ih_(3 * hidden_, place.own),
        d_bias_hh_(3 * hidden_, place.own),
        d_norm_hh_(3 * hidden_, place.own) {}

  void flush() {
    if (job.kind == static_cast<int>(CellKind::gru_reset_after)) return add_weight_gradients();
    if (d_w_.result) {
      pack_strips(chunk_, chunk_stride_, 0, wide_);
      add_outer(wide_, {&job.x, nullptr, job.features}, sums_of(d_w_));
    }
    // U_r and U_z saw h, U_n saw r∘h
    pack_strips(chunk_, chunk_stride_, recurrent_at_, 2 * hidden_);
    add_outer(2 * hidden_, {nullptr, seen_rows(), hidden_}, sums_of(d_u_));
    pack_strips(chunk_, chunk_stride_, recurrent_at_ + 2 * hidden_, hidden_);
    add_outer(hidden_, {nullptr, job.candidate, hidden_}, sums_of(d_u_) + 2 * static_cast<size_t>(hidden_) * hidden_);
  }

  void begin() {
    begin_chunks();
    for (Sums* sums : {&d_bias_ih_, &d_bias_hh_, &d_norm_hh_}) sums->clear();
    const Range mine = my_part(rows_in_batch());
    for (int j = mine.begin; j < mine.end; ++j) dh_.begin(j, batch_of(j));
    meet_everyone();
  }

  const float* saved(const RowAt& at) const { return job.gates + at.row * 3 * hidden_; }
  Vec entering(const RowAt& at, int unit) const {
    return load(job.h.entering + at.row * hidden_ + unit, hidden_ - unit);
  }

  // The gradients that do not wait for r's: at z and n before their activations; h's way past the product.
  struct ZN {
    Vec z, n;
  };
  ZN update_and_candidate(const RowAt& at, int t, int j, int unit) {
    const int count = hidden_ - unit;
    const Vec z = load(saved(at) + hidden_ + unit, count), n = load(saved(at) + 2 * hidden_ + unit, count);
    const Vec gradient = own_share(at, t, j, unit, count);
    const Vec d_z = gradient * (entering(at, unit) - n) * (z * (1.0f - z));
    const Vec d_n = gradient * (1.0f - z) * (1.0f - n * n);
    const Vec kept = has_keep(job.h) ? load(direct(j) + unit) : Vec{};
    store(direct(j) + unit, kept + gradient * z);
    store(d_gates(j) + hidden_ + unit, d_z, count);
    store(d_gates(j) + 2 * hidden_ + unit, d_n, count);
    return {d_z, d_n};
  }

  // Back through LN of some of a row's sums; d_gates holds the gradient at the sum of W x and LN(U h).
  void norm_row(int j, int first, int size, int slot, const float* gradient) {
    const int64_t row = rows_[j].row;
    const float* stats = job.stats + row * 4 + 2 * slot;
    norm_backward(job.raw + row * 3 * hidden_ + first, size, {stats[0], stats[1]}, job.norm_hh + first, gradient,
                  d_recurrent(j) + first, [&](int i, int count, Vec v) { d_norm_hh_.add(first + i, count, v); });
  }

  const int hidden_;
  Sums d_bias_ih_, d_bias_hh_, d_norm_hh_;
};

class GruAfterBackward : public GruBackward {
 public:
  explicit GruAfterBackward(const Place& place)
      : GruBackward(place, true), u_(place.shared->take(packed_size(job, 3 * hidden_, hidden_))) {}

  void prepare() {
    pack_shared(job.weight_hh, 3 * hidden_, hidden_, u_);
    begin();
  }

  void step(int t, int) {
    const int count = look_up_rows(t);
    if (count == 0) return;
    open_step(t, count, [&] { flush(); });
    if (job.norm_hh) {
      const Range rows = my_part(count);
      for (int j = rows.begin; j < rows.end; ++j) {
        for (int unit = 0; unit < hidden_; unit += kLanes) gates(t, unit, {j, j + 1});
        norm_row(j, 0, 3 * hidden_, 0, d_recurrent(j));
      }
    } else {
      const Range units = my_columns(hidden_);
      for (int unit = units.begin; unit < units.end; unit += kLanes) gates(t, unit, {0, count});
    }
    meet_group();
    pass_inputs(t, count);
    multiply(d_recurrent(0), chunk_stride_, count, u_, 3 * hidden_, hidden_,
             [&](int j, int unit, int width, Vec gradient) {
               pass_hidden(rows_[j], j, unit, width, gradient, true);
             });
    if (job.norm_hh) meet_group();  // the next step reads units that others wrote
  }

 private:
  void gates(int t, int unit, Range rows) {
    const int count = hidden_ - unit;
    Vec sum_r = {}, sum_z = {}, sum_n = {}, sum_candidate = {};
    for (int j = rows.begin; j < rows.end; ++j) {
      const RowAt& at = rows_[j];
      const Vec r = load(saved(at) + unit, count);
      const ZN d = update_and_candidate(at, t, j, unit);
      const Vec d_r = d.n * load(job.candidate + at.row * hidden_ + unit, count) * (r * (1.0f - r));
      const Vec d_candidate = d.n * r;
      store(d_gates(j) + unit, d_r, count);
      float* to_product = d_recurrent(j) + unit;
      store(to_product, d_r, count);
      store(to_product + hidden_, d.z, count);
      store(to_product + 2 * hidden_, d_candidate, count);
      sum_r += d_r, sum_z += d.z, sum_n += d.n, sum_candidate += d_candidate;
    }
    d_bias_ih_.add(unit, count, sum_r);
    d_bias_ih_.add(hidden_ + unit, count, sum_z);
    d_bias_ih_.add(2 * hidden_ + unit, count, sum_n);
    d_bias_hh_.add(unit, count, sum_r);
    d_bias_hh_.add(hidden_ + unit, count, sum_z);
    d_bias_hh_.add(2 * hidden_ + unit, count, sum_candidate);
  }

  float* u_;
};

class GruBeforeBackward : public GruBackward {
 public:
  explicit GruBeforeBackward(const Place& place)
      : GruBackward(place, place.job.norm_hh != nullptr),
        u_rz_(place.shared->take(packed_size(job, 2 * hidden_, hidden_))),
        u_n_(place.shared->take(packed_size(job, hidden_, hidden_))),
        d_remembered_(place.of_group->take(static_cast<size_t>(group_rows_) * dh_.stride())) {}

  void prepare() {
    pack_shared(job.weight_hh, 2 * hidden_, hidden_, u_rz_);
    pack_shared(job.weight_hh + 2 * static_cast<size_t>(hidden_) * hidden_, hidden_, hidden_, u_n_);
    begin();
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

 private:
  float* d_remembered(int j) const { return d_remembered_ + static_cast<size_t>(j) * dh_.stride(); }

  void update_candidate(int t, int unit, Range rows) {
    const int count = hidden_ - unit;
    Vec sum_z = {}, sum_n = {};
    for (int j = rows.begin; j < rows.end; ++j) {
      const ZN d = update_and_candidate(rows_[j], t, j, unit);
      sum_z += d.z, sum_n += d.n;
    }
    for (Sums* sums : {&d_bias_ih_, &d_bias_hh_}) {
      sums->add(hidden_ + unit, count, sum_z);
      sums->add(2 * hidden_ + unit, count, sum_n);
    }
  }

  // From the gradient at r∘h: at r before its activation, and (in place) at h.
  void reset_gate(int unit, Range rows) {
    const int count = hidden_ - unit;
    Vec sum_r = {};
    for (int j = rows.begin; j < rows.end; ++j) {
      const RowAt& at = rows_[j];
      const Vec r = load(saved(at) + unit, count), gradient = load(d_remembered(j) + unit);
      const Vec d_r = gradient * load(seen_rows() + at.row * hidden_ + unit, count) * (r * (1.0f - r));
      store(d_remembered(j) + unit, gradient * r);
      store(d_gates(j) + unit, d_r, count);
      sum_r += d_r;
    }
    for (Sums* sums : {&d_bias_ih_, &d_bias_hh_}) sums->add(unit, count, sum_r);
  }

  float *u_rz_, *u_n_;
  float* d_remembered_;
};

}  // namespace unrolled::UNROLLED_NAMESPACE
