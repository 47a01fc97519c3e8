// The scan of the LSTM (cells/lstm.h), with its projection and the layer norm of c.
#pragma once

#include <cstring>

#include "cells/lstm.h"
#include "recurrence/gated.h"

namespace unrolled::UNROLLED_NAMESPACE {

class LstmForward : public ForwardScan {
 public:
  explicit LstmForward(const Place& place)
      : ForwardScan(place),
        panels_(ceil_div(hidden_, kLanes)),
        c_(job.c, hidden_, group_rows_, place.of_group),
        w_(place.shared->take(panels_ * panel_size(job, job.features))),
        u_(place.shared->take(panels_ * panel_size(job, job.width))),
        tile_(place.own->take(static_cast<size_t>(group_rows_) * kPlainWidth)),
        x_bfloats_(take_bfloats(place.own, job.narrow ? static_cast<size_t>(group_rows_) * even(job.features) : 0)),
        h_bfloats_(take_bfloats(place.own, job.narrow ? static_cast<size_t>(group_rows_) * even(job.width) : 0)) {
    if (job.weight_hr) {
      projection_panels_ = ceil_div(job.width, kPlainWidth);
      r_ = place.shared->take(static_cast<size_t>(projection_panels_) * kPlainWidth * hidden_);
      shown_ = place.of_group->take(static_cast<size_t>(group_rows_) * c_.stride());
    }
    if (by_rows()) {
      memory_ = place.own->take(round_up(hidden_, kLanes));
      output_gate_ = place.own->take(round_up(hidden_, kLanes));
    }
  }

  void prepare() {
    if (job.x.data) pack_shared(job.weight_ih, hidden_, job.features, 4, 1, panels_, w_);
    pack_shared(job.weight_hh, hidden_, job.width, 4, 1, panels_, u_);
    pack_shared(job.weight_hr, job.width, hidden_, 1, kPlainVecs, projection_panels_, r_);
    begin_rows([&](int j, int b, int64_t row, bool reset) {
      h_.begin(j, b, row, reset);
      c_.begin(j, b, row, reset);
    });
  }

  void step(int t, int parity) {
    const int count = look_up_rows(t);
    if (count == 0) return;
    look_up_inputs(t, count);
    if (job.narrow && job.x.data) narrow_rows(x_rows_, x_stride_, count, job.features, x_bfloats_);
    if (job.narrow) narrow_rows(h_.seen(parity, 0), h_.stride(), count, job.width, h_bfloats_);
    const Range mine = my_part(panels_);
    for (int panel = mine.begin; panel < mine.end; ++panel) {
      const int unit = panel * kLanes;
      if (job.narrow) narrow_sums(panel, count);
      else if (job.x.data) product<4>(x_rows_, x_stride_, count, w_panel(panel), job.features, tile_);
      if (job.x.data && job.norm_hh) keep_tile(unit, count, [&](int j) { return x_row(j); });
      if (!job.narrow && job.x.data && !job.norm_hh)
        product<4, true>(h_.seen(parity, 0), h_.stride(), count, u_panel(panel), job.width, tile_);
      else if (!job.narrow)
        product<4>(h_.seen(parity, 0), h_.stride(), count, u_panel(panel), job.width, tile_);
      if (by_rows()) keep_tile(unit, count, [&](int j) { return raw_row(j); });
      else gates(t, parity, unit, {0, count}, {tile_, kTile, kLanes}, x_sums(t).from_unit(unit));
    }
    if (by_rows()) {
      meet_group();
      const Range rows = my_part(count);
      for (int j = rows.begin; j < rows.end; ++j) whole_row(t, parity, j);
    }
    if (job.weight_hr) {
      meet_group();
      project(t, parity, count);
    }
    meet_group();
  }

 private:
  static constexpr int kTile = 4 * kLanes;  // sums of a row in a tile: four gates of one vector of units

  float* w_panel(int panel) const { return w_ + panel * panel_size(job, job.features); }
  float* u_panel(int panel) const { return u_ + panel * panel_size(job, job.width); }
  void narrow_sums(int panel, int count) {
    narrow_product(h_bfloats_, even(job.width), count, u_panel(panel), job.width, tile_);
    if (job.x.data)
      narrow_product<true>(x_bfloats_, even(job.features), count, w_panel(panel), job.features, tile_);
  }
  float* r_panel(int panel) const { return r_ + static_cast<size_t>(panel) * kPlainWidth * hidden_; }

  template <class Row>
  void keep_tile(int unit, int count, Row row) const {
    for (int j = 0; j < count; ++j)
      for (int gate = 0; gate < 4; ++gate)
        store(row(j) + gate * hidden_ + unit, load(tile_ + j * kTile + gate * kLanes), hidden_ - unit);
  }

  void whole_row(int t, int parity, int j) {
    if (job.norm_hh) norm_row(j, 0, 4 * hidden_, 0);
    else std::memcpy(sums_, raw_row(j), sizeof(float) * 4 * hidden_);
    for (int unit = 0; unit < hidden_; unit += kLanes)
      gates(t, parity, unit, {j, j + 1}, {sums_ + unit, 0, hidden_}, x_sums(t).from_unit(unit));
    if (!job.norm_c) return;
    const NormStats stats = norm_stats(memory_, hidden_);
    normalize(memory_, hidden_, stats, job.norm_c, job.norm_c_bias, memory_);
    for (int unit = 0; unit < hidden_; unit += kLanes)
      show(t, parity, j, unit, Lstm::output(load(output_gate_ + unit), load(memory_ + unit)));
    keep_stats(j, 1, stats);
  }

  // One vector of units of some sequences. Two passes, so that the activations of many rows overlap: in one, each
  // row would wait for its own chain from the sums to h.
  void gates(int t, int parity, int unit, Range rows, SumsAt of_h, SumsAt of_x) {
    if (hidden_ - unit >= kLanes && !of_x.data && !job.peephole) activate<true>(parity, unit, rows, of_h, of_x);
    else activate<false>(parity, unit, rows, of_h, of_x);
    update(t, parity, unit, rows);
  }

  // The tile of sums becomes one of gates; o waits for c if its peephole reads the new one.
  // SIMPLE: whole vectors, W x in the same sums, no peepholes.
  template <bool SIMPLE>
  void activate(int parity, int unit, Range rows, SumsAt of_h, SumsAt of_x) {
    const int count = SIMPLE ? kLanes : hidden_ - unit;
    const Peepholes peep = SIMPLE ? Peepholes{} : peepholes(unit);
    const Vec shift[4] = {bias(0, unit), bias(1, unit), bias(2, unit), bias(3, unit)};
    for (int j = rows.begin; j < rows.end; ++j) {
      Vec gates[4];
#pragma GCC unroll 4
      for (int gate = 0; gate < 4; ++gate) {
        gates[gate] = of_h.at(j, gate, count) + shift[gate];
        if (!SIMPLE) gates[gate] += of_x.at(j, gate, count);
      }
      Lstm::activate(gates, SIMPLE ? Vec{} : load(c_.entering(parity, j) + unit), peep);
#pragma GCC unroll 4
      for (int gate = 0; gate < 4; ++gate) store(tile_ + j * kTile + gate * kLanes, gates[gate]);
    }
  }
  Peepholes peepholes(int unit) const { return {job.peephole, job.peephole_previous, hidden_, unit}; }

  // From a tile of gates to c and h.
  void update(int t, int parity, int unit, Range rows) {
    const bool simple = hidden_ - unit >= kLanes && !job.peephole && !job.norm_c && !job.weight_hr;
    if (simple && c_.simple() && h_.simple()) update<true>(t, parity, unit, rows);
    else update<false>(t, parity, unit, rows);
  }

  // SIMPLE: whole vectors, no option that changes a state after the gates.
  template <bool SIMPLE>
  void update(int t, int parity, int unit, Range rows) {
    const int count = SIMPLE ? kLanes : hidden_ - unit;
    const Peepholes peep = SIMPLE ? Peepholes{} : peepholes(unit);
    float* const saved = job.save ? job.gates + unit : nullptr;
    for (int j = rows.begin; j < rows.end; ++j) {
      const RowAt& at = rows_[j];
      Vec gates[4];
#pragma GCC unroll 4
      for (int gate = 0; gate < 4; ++gate) gates[gate] = load(tile_ + j * kTile + gate * kLanes);
      const Vec old = load(c_.entering(parity, j) + unit), c = Lstm::update(gates, old, peep);
      if (saved)
#pragma GCC unroll 4
        for (int gate = 0; gate < 4; ++gate) store(saved + (at.row * 4 + gate) * hidden_, gates[gate], count);
      if (SIMPLE) {
        const Vec h = Lstm::output(gates[3], c);
        store(job.output.at(at.b, t) + unit, h);
        c_.leave(at, parity, j, unit, kLanes, c);
        h_.leave_simply(at, parity, j, unit, h);
        continue;
      }
      c_.leave(at, parity, j, unit, count, c_.mixed(at.b, t, unit, count, old, c));
      if (job.norm_c) {
        store(memory_ + unit, c);
        store(output_gate_ + unit, gates[3]);
      } else {
        show(t, parity, j, unit, Lstm::output(gates[3], c));
      }
    }
  }

  // o∘tanh(c) is h, or the input of the projection.
  void show(int t, int parity, int j, int unit, Vec value) {
    const int count = hidden_ - unit;
    if (!job.weight_hr) {
      h_.leave(rows_[j], t, parity, j, unit, count, load(h_.entering(parity, j) + unit), value);
      return;
    }
    store(shown_ + static_cast<size_t>(j) * c_.stride() + unit, value);
    if (job.shown) store(job.shown + rows_[j].row * hidden_ + unit, value, count);
  }

  void project(int t, int parity, int count) {
    const Range mine = my_part(projection_panels_);
    for (int panel = mine.begin; panel < mine.end; ++panel) {
      product<kPlainVecs>(shown_, c_.stride(), count, r_panel(panel), hidden_, tile_);
      for (int j = 0; j < count; ++j)
        for (int v = 0; v < kPlainVecs; ++v) {
          const int unit = panel * kPlainWidth + v * kLanes;
          if (unit >= job.width) break;
          h_.leave(rows_[j], t, parity, j, unit, job.width - unit, load(h_.entering(parity, j) + unit),
                   load(tile_ + j * kPlainWidth + v * kLanes));
        }
    }
  }

  const int panels_;
  int projection_panels_ = 0;
  Track c_;
  float *w_, *u_, *tile_;
  Bfloat *x_bfloats_, *h_bfloats_;  // the rows of a step, in bfloat16
  float *r_ = nullptr, *shown_ = nullptr;                                                   // with a projection
  float *memory_ = nullptr, *output_gate_ = nullptr;  // with layer norm
};

class LstmBackward : public BackwardScan {
 public:
  explicit LstmBackward(const Place& place)
      : BackwardScan(place, place.job.norm_hh != nullptr),
        dc_(job.c, hidden_, group_rows_, place.of_group),
        u_(place.shared->take(packed_size(job, 4 * hidden_, job.width))),
        d_peephole_(3 * hidden_, place.own),
        d_norm_c_(hidden_, place.own),
        d_norm_c_bias_(hidden_, place.own) {
    if (job.weight_hr) {
      r_ = place.shared->take(packed_size(job, job.width, hidden_));
      d_hidden_ = place.of_group->take(static_cast<size_t>(chunk_rows_) * dh_.stride());
      d_r_ = gradient(place, job.d_weight_hr, static_cast<size_t>(job.width) * hidden_);
      d_shown_ = place.of_group->take(static_cast<size_t>(group_rows_) * dc_.stride());
    }
    if (job.norm_c) {
      d_memory_ = place.own->take(round_up(hidden_, kLanes));
      memory_ = place.own->take(round_up(hidden_, kLanes));
      d_output_gate_ = place.own->take(round_up(hidden_, kLanes));
    }
  }

  void prepare() {
    pack_shared(job.weight_hh, 4 * hidden_, job.width, u_);
    if (job.weight_hr) pack_shared(job.weight_hr, job.width, hidden_, r_);
    begin_chunks();
    for (Sums* sums : {&d_peephole_, &d_norm_c_, &d_norm_c_bias_}) sums->clear();
    const Range mine = my_part(rows_in_batch());
    for (int j = mine.begin; j < mine.end; ++j) dc_.begin(j, batch_of(j));
    meet_everyone();
  }

  void step(int t, int) {
    const int count = look_up_rows(t);
    if (count == 0) return;
    open_step(t, count, [&] { flush(); });
    if (job.weight_hr) unproject(t, count);
    if (by_rows()) {
      const Range rows = my_part(count);
      for (int j = rows.begin; j < rows.end; ++j) whole_row(t, j);
    } else {
      const Range units = my_columns(hidden_);
      for (int j = 0; j < count; ++j) gates(t, j, units, rows_[j + 1 < count ? j + 1 : j].row);
    }
    meet_group();
    pass_inputs(t, count);
    const bool with_direct = has_keep(job.h);
    multiply(d_recurrent(0), chunk_stride_, count, u_, 4 * hidden_, job.width,
             [&](int j, int unit, int width, Vec gradient) {
               pass_hidden(rows_[j], j, unit, width, gradient, with_direct);
             });
    if (by_rows() || job.weight_hr) meet_group();  // the next step reads units that others wrote
  }

  void finish() {
    end_chunks([&] { flush(); });
    if (job.weight_hr) {
      clear_unless_flushed(d_r_);
      meet_everyone();
      gather(d_r_);
    }
    const Range mine = my_part(rows_in_batch());
    for (int j = mine.begin; j < mine.end; ++j) dc_.end(j, batch_of(j));
    in_turn([&] {
      d_bias_.add_to(job.d_bias_ih);
      d_bias_.add_to(job.d_bias_hh);
      d_peephole_.add_to(job.d_peephole);
      d_norm_hh_.add_to(job.d_norm_hh);
      d_norm_c_.add_to(job.d_norm_c);
      d_norm_c_bias_.add_to(job.d_norm_c_bias);
    });
  }

 private:
  bool by_rows() const { return job.norm_hh || job.norm_c; }

  void flush() {
    add_weight_gradients();
    if (!job.weight_hr) return;
    pack_strips(d_hidden_, dh_.stride(), 0, job.width);
    add_outer(job.width, {nullptr, job.shown, hidden_}, sums_of(d_r_));
  }
  float* d_hidden(int j) const { return d_hidden_ + static_cast<size_t>(step_at_ + j) * dh_.stride(); }

  // ∂L/∂(o∘tanh c) = ∂L/∂h·R
  void unproject(int t, int count) {
    const Range units = my_columns(job.width);
    for (int unit = units.begin; unit < units.end; unit += kLanes)
      for (int j = 0; j < count; ++j)
        store(d_hidden(j) + unit, own_share(rows_[j], t, j, unit, job.width - unit));
    meet_group();
    multiply(d_hidden(0), dh_.stride(), count, r_, job.width, hidden_, [&](int j, int unit, int, Vec gradient) {
      store(d_shown_ + static_cast<size_t>(j) * dc_.stride() + unit, gradient);
    });
    if (by_rows()) meet_group();
  }

  Vec d_shown(const RowAt& at, int t, int j, int unit, int count) {
    if (job.weight_hr) return load(d_shown_ + static_cast<size_t>(j) * dc_.stride() + unit);
    return own_share(at, t, j, unit, count);
  }

  void whole_row(int t, int j) {
    const int64_t row = rows_[j].row;
    if (job.norm_c) norm_c_backward(t, j, {job.stats[row * 4 + 2], job.stats[row * 4 + 3]});
    gates(t, j, {0, hidden_}, row);
    if (job.norm_hh) norm_row(j, 0, wide_, 0, d_gates(j));
  }

  // With h = o∘tanh(LN(c)): the gradients at o and at c that come from h.
  void norm_c_backward(int t, int j, NormStats stats) {
    const RowAt& at = rows_[j];
    const float* saved = job.gates + at.row * 4 * hidden_;
    for (int unit = 0; unit < hidden_; unit += kLanes) {
      const int count = hidden_ - unit;
      const Vec i = load(saved + unit, count), f = load(saved + hidden_ + unit, count);
      const Vec g = load(saved + 2 * hidden_ + unit, count);
      store(memory_ + unit, Lstm::new_c(i, f, g, load(job.c.entering + at.row * hidden_ + unit, count)));
    }
    for (int unit = 0; unit < hidden_; unit += kLanes) {
      const int count = hidden_ - unit;
      const Vec normal = (load(memory_ + unit) - stats.mean) * stats.inverse;
      Vec shifted = normal * load(job.norm_c + unit, count);
      if (job.norm_c_bias) shifted += load(job.norm_c_bias + unit, count);
      const auto d = Lstm::output_backward(load(saved + 3 * hidden_ + unit, count), shifted, d_shown(at, t, j, unit, count));
      store(d_memory_ + unit, d.c);
      d_norm_c_bias_.add(unit, count, d.c);
      store(d_output_gate_ + unit, d.o);
    }
    norm_backward(memory_, hidden_, stats, job.norm_c, d_memory_, d_memory_,
                  [&](int i, int count, Vec v) { d_norm_c_.add(i, count, v); });
  }

  // Some units of one sequence: along the rows, so that the saved gates are read in order. They may be in main memory:
  // the next row is prefetched.
  void gates(int t, int j, Range units, int64_t next_row) {
    const RowAt& at = rows_[j];
    for (int unit = units.begin; unit < units.end; unit += kLanes) {
      const int count = hidden_ - unit;
      const float* saved = job.gates + at.row * 4 * hidden_ + unit;
      for (int gate = 0; gate < 4; ++gate) prefetch(job.gates + (next_row * 4 + gate) * hidden_ + unit);
      prefetch(job.c.entering + next_row * hidden_ + unit);
      Vec gates[4];
#pragma GCC unroll 4
      for (int gate = 0; gate < 4; ++gate) gates[gate] = load(saved + gate * hidden_, count);
      const Vec old = load(job.c.entering + at.row * hidden_ + unit, count);
      const Vec c = Lstm::new_c(gates[0], gates[1], gates[2], old);
      Vec dc = load(dc_.at(j) + unit);
      dc_.show(at, unit, count, dc);
      Vec past_step = {};
      if (has_keep(job.c)) {
        const Vec keep = keep_share(job.c, at.b, t, unit, count);
        past_step = keep * dc;
        dc = (1.0f - keep) * dc;
      }
      Vec d_o;
      if (job.norm_c) {
        d_o = load(d_output_gate_ + unit);
        dc += load(d_memory_ + unit);
      } else {
        const auto d = Lstm::output_backward(gates[3], c, d_shown(at, t, j, unit, count));
        d_o = d.o;
        dc += d.c;
      }
      const Peepholes peep{job.peephole, job.peephole_previous, hidden_, unit};
      const auto d = Lstm::backward(gates, old, c, d_o, dc, past_step, peep);
      for (int gate = 0; job.peephole && gate < 3; ++gate) d_peephole_.add(gate * hidden_ + unit, count, d.peephole[gate]);
      dc_.pass(at, j, unit, count, d.c);
#pragma GCC unroll 4
      for (int gate = 0; gate < 4; ++gate) {
        d_bias_.add(gate * hidden_ + unit, count, d.gates[gate]);
        store(d_gates(j) + gate * hidden_ + unit, d.gates[gate], count);
      }
    }
  }

  GradientTrack dc_;
  float* u_;
  Sums d_peephole_, d_norm_c_, d_norm_c_bias_;
  float *r_ = nullptr, *d_hidden_ = nullptr, *d_shown_ = nullptr;  // with a projection
  Gradient d_r_;
  float *d_memory_ = nullptr, *memory_ = nullptr, *d_output_gate_ = nullptr;  // with LN(c)
};

template <>
struct ScanOf<Lstm> {
  using Forward = LstmForward;
  using Backward = LstmBackward;
};

}  // namespace unrolled::UNROLLED_NAMESPACE
