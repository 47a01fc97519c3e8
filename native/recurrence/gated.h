// The scan of a cell with one state and one recurrent product (cells/gated.h).
#pragma once

#include "cells/gated.h"
#include "recurrence/scan.h"

namespace unrolled::UNROLLED_NAMESPACE {

template <class Cell>
class GatedForward : public ForwardScan {
 public:
  explicit GatedForward(const Place& place)
      : ForwardScan(place),
        panels_(ceil_div(hidden_, kUnits)),
        w_(place.shared->take(static_cast<size_t>(panels_) * kTile * job.features)),
        u_(place.shared->take(static_cast<size_t>(panels_) * kTile * hidden_)),
        x_tile_(place.own->take(static_cast<size_t>(group_rows_) * kTile)),
        tile_(place.own->take(static_cast<size_t>(group_rows_) * kTile)) {}

  void prepare() {
    if (job.x.data) pack_shared(job.weight_ih, hidden_, job.features, kGates, kBlocks, panels_, w_);
    pack_shared(job.weight_hh, hidden_, hidden_, kGates, kBlocks, panels_, u_);
    begin_rows([&](int j, int b, int64_t row, bool reset) { h_.begin(j, b, row, reset); });
  }

  void step(int t, int parity) {
    const int count = look_up_rows(t);
    if (count == 0) return;
    look_up_inputs(t, count);
    const Range mine = my_part(panels_);
    for (int panel = mine.begin; panel < mine.end; ++panel) {
      multiply_panel(parity, panel, count);
      for (int block = 0; block < kBlocks && panel * kUnits + block * kLanes < hidden_; ++block) {
        const int unit = panel * kUnits + block * kLanes;
        const SumsAt of_h = in_tile(tile_, block);
        const SumsAt of_x = job.x.data && x_apart() ? in_tile(x_tile_, block) : x_sums(t).from_unit(unit);
        if (job.norm_hh) keep_sums(unit, count, of_h, of_x);
        else gates(t, parity, unit, {0, count}, of_h, of_x);
      }
    }
    if (job.norm_hh) {
      meet_group();
      const Range rows = my_part(count);
      for (int j = rows.begin; j < rows.end; ++j) {
        norm_row(j, 0, kGates * hidden_, 0);
        for (int unit = 0; unit < hidden_; unit += kLanes)
          gates(t, parity, unit, {j, j + 1}, {sums_ + unit, 0, hidden_}, x_sums(t).from_unit(unit));
      }
    }
    meet_group();
  }

 private:
  static constexpr int kGates = Cell::kGates;
  static constexpr bool kCandidate = Cell::kTraits.candidate;
  static constexpr int kBlocks = kGates < kPlainVecs ? kPlainVecs / kGates : 1;  // vectors of units in a panel
  static constexpr int kVecs = kGates * kBlocks, kUnits = kBlocks * kLanes, kTile = kVecs * kLanes;

  // W x joins U h in one tile where no gate and no layer norm needs one without the other.
  bool x_apart() const { return kCandidate || job.norm_hh; }
  static SumsAt in_tile(const float* tile, int block) { return {tile + block * kLanes, kTile, kUnits}; }

  void multiply_panel(int parity, int panel, int count) {
    const size_t at = static_cast<size_t>(panel) * kTile;
    const float *h = h_.seen(parity, 0), *u = u_ + at * hidden_;
    if (job.x.data)
      product<kVecs>(x_rows_, x_stride_, count, w_ + at * job.features, job.features, x_apart() ? x_tile_ : tile_);
    if (job.x.data && !x_apart()) product<kVecs, true>(h, h_.stride(), count, u, hidden_, tile_);
    else product<kVecs>(h, h_.stride(), count, u, hidden_, tile_);
  }

  void keep_sums(int unit, int count, SumsAt of_h, SumsAt of_x) const {
    for (int j = 0; j < count; ++j)
      for (int gate = 0; gate < kGates; ++gate) {
        store(raw_row(j) + gate * hidden_ + unit, of_h.at(j, gate, kLanes), hidden_ - unit);
        if (job.x.data) store(x_row(j) + gate * hidden_ + unit, of_x.at(j, gate, kLanes), hidden_ - unit);
      }
  }

  void gates(int t, int parity, int unit, Range rows, SumsAt of_h, SumsAt of_x) {
    constexpr int kLast = kGates - 1;
    const int count = hidden_ - unit;
    Vec shift[kGates], shift_candidate = {};
    for (int gate = 0; gate < kGates; ++gate) shift[gate] = bias(gate, unit);
    if (kCandidate) {
      shift[kLast] = job.bias_ih ? load(job.bias_ih + kLast * hidden_ + unit, count) : Vec{};
      shift_candidate = job.bias_hh ? load(job.bias_hh + kLast * hidden_ + unit, count) : Vec{};
    }
    for (int j = rows.begin; j < rows.end; ++j) {
      Vec gates[kGates], candidate = {};
#pragma GCC unroll 4
      for (int gate = 0; gate < kGates; ++gate) {
        const Vec x = of_x.at(j, gate, count), u = of_h.at(j, gate, count);
        if (kCandidate && gate == kLast) gates[gate] = x + shift[gate], candidate = u + shift_candidate;
        else gates[gate] = kCandidate ? x + u + shift[gate] : u + (x + shift[gate]);
      }
      const Vec old = load(h_.entering(parity, j) + unit), h = Cell::forward(gates, candidate, old);
      if (job.save) {
        float* to = job.gates + rows_[j].row * kGates * hidden_ + unit;
#pragma GCC unroll 4
        for (int gate = 0; gate < kGates; ++gate) store(to + gate * hidden_, gates[gate], count);
        if (kCandidate) store(job.candidate + rows_[j].row * hidden_ + unit, candidate, count);
      }
      h_.leave(rows_[j], t, parity, j, unit, count, old, h);
    }
  }

  const int panels_;
  float *w_, *u_, *x_tile_, *tile_;
};

template <class Cell>
class GatedBackward : public BackwardScan {
 public:
  explicit GatedBackward(const Place& place)
      : BackwardScan(place, kCandidate || place.job.norm_hh),
        u_(place.shared->take(packed_size(job, wide_, hidden_))),
        d_candidate_(kCandidate ? hidden_ : 0, place.own) {}

  void prepare() {
    pack_shared(job.weight_hh, wide_, hidden_, u_);
    begin_chunks();
    d_candidate_.clear();
    meet_everyone();
  }

  void step(int t, int) {
    const int count = look_up_rows(t);
    if (count == 0) return;
    open_step(t, count, [&] { add_weight_gradients(); });
    if (job.norm_hh) {
      const Range rows = my_part(count);
      for (int j = rows.begin; j < rows.end; ++j) {
        for (int unit = 0; unit < hidden_; unit += kLanes) gates(t, unit, {j, j + 1});
        norm_row(j, 0, wide_, 0, kCandidate ? d_recurrent(j) : d_gates(j));
      }
    } else {
      const Range units = my_columns(hidden_);
      for (int unit = units.begin; unit < units.end; unit += kLanes) gates(t, unit, {0, count});
    }
    meet_group();
    pass_inputs(t, count);
    const bool with_direct = Cell::kPastProduct || has_keep(job.h);
    multiply(d_recurrent(0), chunk_stride_, count, u_, wide_, hidden_, [&](int j, int unit, int width, Vec gradient) {
      pass_hidden(rows_[j], j, unit, width, gradient, with_direct);
    });
    if (job.norm_hh) meet_group();  // the next step reads units that others wrote
  }

  void finish() {
    end_chunks([&] { add_weight_gradients(); });
    in_turn([&] {
      const int before = kCandidate ? wide_ - hidden_ : wide_;
      d_bias_.add_to(job.d_bias_ih);
      d_bias_.add_to(job.d_bias_hh, before);
      if (kCandidate && job.d_bias_hh) d_candidate_.add_to(job.d_bias_hh + before);
      d_norm_hh_.add_to(job.d_norm_hh);
    });
  }

 private:
  static constexpr int kGates = Cell::kGates;
  static constexpr bool kCandidate = Cell::kTraits.candidate;

  void gates(int t, int unit, Range rows) {
    const int count = hidden_ - unit;
    Vec sums[kGates] = {}, sum_candidate = {};
    for (int j = rows.begin; j < rows.end; ++j) {
      const RowAt& at = rows_[j];
      const float* saved = job.gates + at.row * wide_ + unit;
      Vec gates[kGates];
#pragma GCC unroll 4
      for (int gate = 0; gate < kGates; ++gate) gates[gate] = load(saved + gate * hidden_, count);
      const Vec candidate = kCandidate ? load(job.candidate + at.row * hidden_ + unit, count) : Vec{};
      const Vec old = Cell::kPastProduct ? load(job.h.entering + at.row * hidden_ + unit, count) : Vec{};
      const Vec gradient = own_share(at, t, j, unit, count);
      const Vec kept = Cell::kPastProduct && has_keep(job.h) ? load(direct(j) + unit) : Vec{};
      const auto d = Cell::backward(gates, candidate, old, gradient);
      if (Cell::kPastProduct) store(direct(j) + unit, kept + d.h);
#pragma GCC unroll 4
      for (int gate = 0; gate < kGates; ++gate) {
        store(d_gates(j) + gate * hidden_ + unit, d.gates[gate], count);
        if (kCandidate)
          store(d_recurrent(j) + gate * hidden_ + unit, gate < kGates - 1 ? d.gates[gate] : d.candidate, count);
        sums[gate] += d.gates[gate];
      }
      sum_candidate += d.candidate;
    }
    for (int gate = 0; gate < kGates; ++gate) d_bias_.add(gate * hidden_ + unit, count, sums[gate]);
    if (kCandidate) d_candidate_.add(unit, count, sum_candidate);
  }

  float* u_;
  Sums d_candidate_;  // the gradient of the candidate's recurrent bias
};

// The scans of a cell; cells with a second state or a second product have their own.
template <class Cell>
struct ScanOf {
  using Forward = GatedForward<Cell>;
  using Backward = GatedBackward<Cell>;
};

}  // namespace unrolled::UNROLLED_NAMESPACE
