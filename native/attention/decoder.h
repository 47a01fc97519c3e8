// Attention decoders over all steps, forward and backward: equations in unrolled/cells/attending.py.
//
// Each thread takes some of the sequences and waits for the others only while they pack the weights, which they
// share. A step's products run on small blocks of rows, one for each sequence, longest first, so that those that have a
// step are the first ones. Gradients of weights are left to the caller: one product over all steps each.
#pragma once

#include <cstring>
#include <initializer_list>
#include <utility>

#include "attention/query.h"
#include "cells/cells.h"
#include "recurrence/scan.h"
#include "runtime/bfloat_product.h"
#include "runtime/product.h"

namespace unrolled::UNROLLED_NAMESPACE {

// A matrix packed for `product`, or, in bfloat16, for `narrow_product`.
struct Packed {
  float* panels = nullptr;
  int depth = 0, columns = 0;
};

// Rows of one width, one for each sequence of a thread, with room for a whole vector after each.
struct Block {
  float* data = nullptr;
  int stride = 0;
  float* operator[](int j) const { return data + static_cast<size_t>(j) * stride; }
};

class AttentionScan {
 public:
  static Plan plan(const AttentionJob& job, int threads) {
    const double weights = 1.0 * job.hidden * (4 * (job.hidden + job.feed) + job.key_size);
    Plan plan = make_plan(threads, job.batch, 1, 2.0 * job.batch * weights, job.steps);
    return {plan.groups, 1};
  }

 protected:
  AttentionScan(const AttentionJob& job, Plan plan, Workspace& space)
      : job(job),
        traits_(traits_of(job.kind)),
        hidden_(job.hidden),
        wide_(traits_.gates * hidden_),
        joined_(wide_ - (traits_.candidate ? hidden_ : 0)),
        mix_(job.context_size + job.hidden),
        groups_(plan.groups),
        id_(space.id),
        everyone_(space.everyone),
        rows_(ceil_div(job.batch, plan.groups)),
        real_(reinterpret_cast<int*>(space.own.take(static_cast<size_t>(rows_) * job.positions))),
        real_counts_(reinterpret_cast<int*>(space.own.take(rows_))),
        scratch_(space.own.take(job.positions + kLanes)),
        tile_(space.own.take(static_cast<size_t>(rows_) * kPlainWidth)),
        deepest_(deepest(job, wide_, mix_)),
        bfloats_(reinterpret_cast<Bfloat*>(space.own.take(job.narrow ? static_cast<size_t>(rows_) * even(deepest_) / 2 : 0))),
        wide_panel_(space.own.take(job.narrow ? static_cast<size_t>(deepest_) * kPlainWidth : 0)) {}

  // The most rows of any matrix that a step multiplies with, forward or backward.
  static int deepest(const AttentionJob& job, int wide, int mix) {
    int most = wide > mix ? wide : mix;
    for (int depth : {job.feed, job.key_size, job.value_size, job.context_size}) most = depth > most ? depth : most;
    return most;
  }

  // Which sequences are this thread's, and how far they go.
  int rank(int j) const { return j * groups_ + id_; }
  int batch_of(int j) const { return job.order ? static_cast<int>(job.order[rank(j)]) : rank(j); }
  int sequences() const { return ceil_div(job.batch - id_, groups_); }
  int length(int b) const { return job.lengths ? static_cast<int>(job.lengths[b]) : job.steps; }
  int active(int t) const {
    const int count = job.active ? static_cast<int>(job.active[t]) : job.batch;
    return count > id_ ? ceil_div(count - id_, groups_) : 0;
  }
  // A step's row in a contiguous (B, T, width).
  template <class Float>
  Float* at(Float* rows, int b, int t, int width) const {
    return rows + (static_cast<size_t>(b) * job.steps + t) * width;
  }

  void find_real_positions() {
    for (int j = 0; j < sequences(); ++j) {
      const int b = batch_of(j);
      int* real = real_ + static_cast<size_t>(j) * job.positions;
      int count = 0;
      for (int s = 0; s < job.positions; ++s)
        if (!job.mask || job.mask[static_cast<size_t>(b) * job.positions + s]) real[count++] = s;
      real_counts_[j] = count;
    }
  }
  MemoryRows memory(int j, int b) const {
    const size_t first = static_cast<size_t>(b) * job.positions;
    return {job.keys + first * job.key_size, job.values + first * job.value_size,
            real_ + static_cast<size_t>(j) * job.positions, real_counts_[j]};
  }

  // Zeros past a length: products over all steps read these rows, and 0·NaN is NaN.
  void clear_padding(std::initializer_list<std::pair<float*, int>> all) const {
    if (!job.lengths) return;
    for (int j = 0; j < sequences(); ++j) {
      const int b = batch_of(j), first = length(b);
      for (auto [rows, width] : all)
        if (rows) std::memset(at(rows, b, first, width), 0, sizeof(float) * width * (job.steps - first));
    }
  }

  Block block(Workspace& space, int width) const {
    const int stride = round_up(width, kLanes) + kLanes;
    return {space.own.take(static_cast<size_t>(rows_) * stride), stride};
  }
  Packed packed(Workspace& space, int depth, int columns) const {
    return {space.shared.take(panel_size(depth) * ceil_div(columns, kPlainWidth)), depth, columns};
  }
  size_t panel_size(int depth) const {
    return job.narrow ? narrow_panel(depth) : static_cast<size_t>(depth) * kPlainWidth;
  }

  // For W x: the rows of W (columns, depth) become columns. Every thread does its part.
  void pack_rows(const Packed& to, const float* matrix) const {
    each_panel(to, [&](int first, float* panel) {
      pack_gates(matrix, to.columns, to.depth, 1, kPlainVecs, first, panel);
    });
  }
  // For d W: a matrix (depth, columns) as it is.
  void pack_as_is(const Packed& to, const float* matrix) const {
    each_panel(to, [&](int first, float* panel) {
      pack_columns(matrix, to.columns, to.depth, kPlainWidth, first, panel);
    });
  }
  template <class Each>
  void each_panel(const Packed& to, Each each) const {
    const Range mine = part_of(ceil_div(to.columns, kPlainWidth), id_, groups_);
    for (int panel = mine.begin; panel < mine.end; ++panel) {
      float* place = to.panels + panel * panel_size(to.depth);
      each(panel * kPlainWidth, job.narrow ? wide_panel_ : place);
      if (job.narrow) narrow_pairs(wide_panel_, to.depth, place);
    }
  }
  void meet_everyone() { everyone_->wait(groups_); }

  // out(j, column, the rows' product with a packed matrix); past the last column there are zeros.
  template <class Out>
  void multiply(const Block& rows, int count, const Packed& by, Out out) const {
    for (int j = 0; job.narrow && j < count; ++j) narrow_row(rows[j], by.depth, bfloats_ + j * even(by.depth));
    const float* panel = by.panels;
    for (int first = 0; first < by.columns; first += kPlainWidth, panel += panel_size(by.depth)) {
      if (job.narrow) narrow_product(bfloats_, even(by.depth), count, panel, by.depth, tile_);
      else product<kPlainVecs>(rows.data, rows.stride, count, panel, by.depth, tile_);
      for (int j = 0; j < count; ++j)
        for (int v = 0; v < kPlainVecs && first + v * kLanes < by.columns; ++v)
          out(j, first + v * kLanes, load(tile_ + j * kPlainWidth + v * kLanes));
    }
  }
  static void add(float* to, Vec v) { store(to, load(to) + v); }

  // Puts a row where it lies in a tensor, and takes it from there.
  static void copy(float* to, const float* from, int size) { std::memcpy(to, from, sizeof(float) * size); }
  void keep(float* rows, int b, int t, const float* from, int width) const {
    if (rows) copy(at(rows, b, t, width), from, width);
  }
  static void fetch(float* to, const float* from, int size) {
    for (int i = 0; i < size; i += kLanes) store(to + i, from ? load(from + i, size - i) : Vec{});
  }
  static void times(float* row, const float* mask, int size) {
    for (int i = 0; i < size; i += kLanes) store(row + i, load(row + i) * load(mask + i, size - i));
  }

  const AttentionJob& job;
  const CellTraits traits_;
  const int hidden_, wide_, joined_, mix_, groups_, id_;  // joined: rows of U whose product joins W x in one sum
  Barrier* everyone_;
  const int rows_;
  int *real_, *real_counts_;
  float *scratch_, *tile_;
  const int deepest_;
  Bfloat* bfloats_;
  float* wide_panel_;
};

class AttentionForward : protected AttentionScan {
 public:
  AttentionForward(const AttentionJob& job, Plan plan, Workspace& space)
      : AttentionScan(job, plan, space),
        u_(packed(space, hidden_, joined_)),
        u_n_(packed(space, hidden_, wide_ - joined_)),
        w_feed_(packed(space, job.feed, wide_)),
        w_query_(packed(space, hidden_, job.weight_query ? job.key_size : 0)),
        w_out_(packed(space, job.value_size, job.weight_out ? job.context_size : 0)),
        w_mix_(packed(space, mix_, job.luong ? job.feed : 0)),
        h_(block(space, hidden_)),
        c_(block(space, hidden_)),
        seen_(block(space, hidden_)),
        fed_(block(space, job.feed)),
        fed_in_(block(space, job.feed)),
        sums_(block(space, wide_)),
        candidate_(block(space, hidden_)),
        query_(block(space, job.key_size)),
        looked_(block(space, job.value_size)),
        context_(block(space, job.context_size)),
        both_(block(space, mix_)) {}

  void run() {
    pack_rows(u_, job.weight_hh);
    if (traits_.candidate) pack_rows(u_n_, job.weight_hh + static_cast<size_t>(joined_) * hidden_);
    pack_rows(w_feed_, job.weight_feed);
    if (job.weight_query) pack_rows(w_query_, job.weight_query);
    if (job.weight_out) pack_rows(w_out_, job.weight_out);
    if (job.luong) pack_rows(w_mix_, job.weight_mix);
    find_real_positions();
    for (int j = 0; j < sequences(); ++j) {
      const size_t b = batch_of(j);
      fetch(h_[j], job.h_0 + b * hidden_, hidden_);
      if (job.c_0) fetch(c_[j], job.c_0 + b * hidden_, hidden_);
      if (job.luong) fetch(fed_[j], job.fed_0 + b * job.feed, job.feed);
    }
    clear_padding({{job.output, job.luong ? job.feed : hidden_}, {job.context, job.context_size},
                   {job.weights, job.positions}, {job.h_entering, hidden_}, {job.seen, hidden_},
                   {job.candidate, hidden_}, {job.hidden_rows, hidden_}, {job.fed_rows, job.feed},
                   {job.query_rows, job.key_size}, {job.head_weights, job.heads * job.positions},
                   {job.looked, job.value_size}, {job.mixed, mix_}});
    meet_everyone();
    for (int t = 0; t < job.steps; ++t) step(t, active(t));
    for (int j = 0; j < sequences(); ++j) {
      const size_t b = batch_of(j);
      copy(job.h_n + b * hidden_, h_[j], hidden_);
      if (job.c_n) copy(job.c_n + b * hidden_, c_[j], hidden_);
      if (job.fed_n) copy(job.fed_n + b * job.feed, fed_[j], job.feed);
    }
  }

 private:
  void step(int t, int count) {
    for (int j = 0; j < count; ++j) {
      const int b = batch_of(j);
      keep(job.h_entering, b, t, h_[j], hidden_);
      if (job.c_entering) keep(job.c_entering, b, t, c_[j], hidden_);
      fetch(seen_[j], h_[j], hidden_);
      if (job.hidden_mask) times(seen_[j], job.hidden_mask + static_cast<size_t>(b) * hidden_, hidden_);
      keep(job.seen, b, t, seen_[j], hidden_);
    }
    if (!job.luong) look_around(t, count);
    const Block& fed = job.luong ? fed_ : context_;
    for (int j = 0; j < count; ++j) {
      const int b = batch_of(j);
      fetch(fed_in_[j], fed[j], job.feed);
      if (job.feed_mask.data) times(fed_in_[j], job.feed_mask.at(b, t), job.feed);
      keep(job.fed_rows, b, t, fed_in_[j], job.feed);
      fetch(sums_[j], job.gates_x.at(b, t), wide_);
    }
    multiply(fed_in_, count, w_feed_, [&](int j, int unit, Vec v) { add(sums_[j] + unit, v); });
    multiply(seen_, count, u_, [&](int j, int unit, Vec v) { add(sums_[j] + unit, v); });
    with_cell(job.kind, [&](auto cell) { cell_step(cell, t, count); });
    if (!job.luong)
      for (int j = 0; j < count; ++j) copy(at(job.output, batch_of(j), t, hidden_), h_[j], hidden_);
    if (!job.luong) return;
    for (int j = 0; j < count; ++j) keep(job.hidden_rows, batch_of(j), t, h_[j], hidden_);
    look_around(t, count);
    mix(t, count);
  }

  void look_around(int t, int count) {
    if (job.weight_query)
      multiply(h_, count, w_query_, [&](int j, int unit, Vec v) {
        if (job.bias_query) v += load(job.bias_query + unit, job.key_size - unit);
        store(query_[j] + unit, v);
      });
    const Block& looked = job.weight_out ? looked_ : context_;
    for (int j = 0; j < count; ++j) {
      const int b = batch_of(j);
      const float* query = job.weight_query ? query_[j] : h_[j];
      if (job.weight_query) keep(job.query_rows, b, t, query, job.key_size);
      look(job, memory(j, b), query, scratch_, at(job.weights, b, t, job.positions),
           job.head_weights ? at(job.head_weights, b, t, job.heads * job.positions) : nullptr, looked[j]);
      keep(job.looked, b, t, looked[j], job.value_size);
    }
    if (job.weight_out)
      multiply(looked_, count, w_out_, [&](int j, int unit, Vec v) {
        if (job.bias_out) v += load(job.bias_out + unit, job.context_size - unit);
        store(context_[j] + unit, v);
      });
    for (int j = 0; j < count; ++j) keep(job.context, batch_of(j), t, context_[j], job.context_size);
  }

  // h̃ = tanh(W_c [c; h] + b_c)
  void mix(int t, int count) {
    for (int j = 0; j < count; ++j) {
      const int b = batch_of(j);
      fetch(both_[j], context_[j], job.context_size);
      fetch(both_[j] + job.context_size, h_[j], hidden_);
      if (job.mix_mask.data) times(both_[j], job.mix_mask.at(b, t), mix_);
      keep(job.mixed, b, t, both_[j], mix_);
    }
    multiply(both_, count, w_mix_, [&](int j, int unit, Vec v) {
      if (job.bias_mix) v += load(job.bias_mix + unit, job.feed - unit);
      store(fed_[j] + unit, tanh(v));
    });
    for (int j = 0; j < count; ++j) copy(at(job.output, batch_of(j), t, job.feed), fed_[j], job.feed);
  }

  Vec bias(int gate, int unit) const {
    return job.bias_hh ? load(job.bias_hh + gate * hidden_ + unit, hidden_ - unit) : Vec{};
  }
  Vec sum_of(int j, int gate, int unit) const { return load(sums_[j] + gate * hidden_ + unit) + bias(gate, unit); }
  void keep_gate(int b, int t, int gate, int unit, Vec v) const {
    if (job.gates) store(at(job.gates, b, t, wide_) + gate * hidden_ + unit, v, hidden_ - unit);
  }

  template <class Cell>
  void cell_step(Cell, int t, int count) {
    constexpr int kGates = Cell::kGates;
    if (Cell::kTraits.candidate)
      multiply(seen_, count, u_n_, [&](int j, int unit, Vec v) { store(candidate_[j] + unit, v + bias(kGates - 1, unit)); });
    for (int j = 0; j < count; ++j) {
      const int b = batch_of(j);
      for (int unit = 0; unit < hidden_; unit += kLanes) {
        Vec gates[kGates], candidate = {};
        for (int gate = 0; gate < kGates; ++gate) gates[gate] = sum_of(j, gate, unit);
        if (Cell::kTraits.candidate) {
          gates[kGates - 1] = load(sums_[j] + joined_ + unit);
          candidate = load(candidate_[j] + unit);
        }
        store(h_[j] + unit, Cell::forward(gates, candidate, load(h_[j] + unit)));
        for (int gate = 0; gate < kGates; ++gate) keep_gate(b, t, gate, unit, gates[gate]);
      }
      if (Cell::kTraits.candidate) keep(job.candidate, b, t, candidate_[j], hidden_);
    }
  }

  void cell_step(Lstm, int t, int count) {
    for (int j = 0; j < count; ++j)
      for (int unit = 0; unit < hidden_; unit += kLanes) {
        Vec gates[4];
        for (int gate = 0; gate < 4; ++gate) gates[gate] = sum_of(j, gate, unit);
        const Vec old = load(c_[j] + unit);
        Lstm::activate(gates, old, {});
        const Vec c = Lstm::update(gates, old, {});
        for (int gate = 0; gate < 4; ++gate) keep_gate(batch_of(j), t, gate, unit, gates[gate]);
        store(c_[j] + unit, c);
        store(h_[j] + unit, Lstm::output(gates[3], c));
      }
  }

  // r and z first, z among the sums; then U_n (r∘h).
  void cell_step(GruResetBefore, int t, int count) {
    for (int j = 0; j < count; ++j) {
      const int b = batch_of(j);
      for (int unit = 0; unit < hidden_; unit += kLanes) {
        Vec r = sum_of(j, 0, unit), z = sum_of(j, 1, unit);
        store(candidate_[j] + unit, GruResetBefore::reset(r, z, load(seen_[j] + unit)));
        store(sums_[j] + hidden_ + unit, z, hidden_ - unit);
        keep_gate(b, t, 0, unit, r);
        keep_gate(b, t, 1, unit, z);
      }
      keep(job.candidate, b, t, candidate_[j], hidden_);
    }
    multiply(candidate_, count, u_n_, [&](int j, int unit, Vec v) {
      Vec n = load(sums_[j] + joined_ + unit) + v + bias(2, unit);
      store(h_[j] + unit, GruResetBefore::candidate(load(sums_[j] + hidden_ + unit), n, load(h_[j] + unit)));
      keep_gate(batch_of(j), t, 2, unit, n);
    });
  }

  const Packed u_, u_n_, w_feed_, w_query_, w_out_, w_mix_;
  const Block h_, c_, seen_, fed_, fed_in_, sums_, candidate_, query_, looked_, context_, both_;
};

class AttentionBackward : protected AttentionScan {
 public:
  AttentionBackward(const AttentionJob& job, Plan plan, Workspace& space)
      : AttentionScan(job, plan, space),
        u_(packed(space, joined_, hidden_)),
        u_n_(packed(space, hidden_, wide_ - joined_)),
        w_feed_(packed(space, wide_, job.feed)),
        w_query_(packed(space, job.key_size, job.weight_query ? hidden_ : 0)),
        w_out_(packed(space, job.context_size, job.weight_out ? job.value_size : 0)),
        w_mix_(packed(space, job.feed, job.luong ? mix_ : 0)),
        dh_(block(space, hidden_)),
        dc_(block(space, hidden_)),
        d_fed_(block(space, job.feed)),
        d_gates_(block(space, wide_)),
        d_candidate_(block(space, hidden_)),
        d_context_(block(space, job.context_size)),
        d_looked_(block(space, job.value_size)),
        d_query_(block(space, job.key_size)),
        d_mixed_(block(space, job.feed)),
        d_both_(block(space, mix_)) {}

  void run() {
    pack_as_is(u_, job.weight_hh);
    if (traits_.candidate) pack_as_is(u_n_, job.weight_hh + static_cast<size_t>(joined_) * hidden_);
    pack_as_is(w_feed_, job.weight_feed);
    if (job.weight_query) pack_as_is(w_query_, job.weight_query);
    if (job.weight_out) pack_as_is(w_out_, job.weight_out);
    if (job.luong) pack_as_is(w_mix_, job.weight_mix);
    find_real_positions();
    for (int j = 0; j < sequences(); ++j) {
      const size_t b = batch_of(j), keys = static_cast<size_t>(job.positions) * job.key_size;
      fetch(dh_[j], job.d_h_n ? job.d_h_n + b * hidden_ : nullptr, hidden_);
      fetch(dc_[j], job.d_c_n ? job.d_c_n + b * hidden_ : nullptr, hidden_);
      fetch(d_fed_[j], job.d_fed_n ? job.d_fed_n + b * job.feed : nullptr, job.feed);
      if (job.d_keys) std::memset(job.d_keys + b * keys, 0, sizeof(float) * keys);
      if (job.d_vector) std::memset(job.d_vector + b * job.key_size, 0, sizeof(float) * job.key_size);
    }
    clear_padding({{job.d_gates, wide_}, {job.d_candidate, hidden_}, {job.d_seen, job.context_size},
                   {job.d_looked, job.value_size}, {job.d_scores, job.heads * job.positions}, {job.d_query, job.key_size}, {job.d_mixed, job.feed}});
    meet_everyone();
    for (int t = job.steps - 1; t >= 0; --t) step(t, active(t));
    for (int j = 0; j < sequences(); ++j) {
      const size_t b = batch_of(j);
      copy(job.d_h_0 + b * hidden_, dh_[j], hidden_);
      if (job.d_c_0) copy(job.d_c_0 + b * hidden_, dc_[j], hidden_);
      if (job.d_fed_0) copy(job.d_fed_0 + b * job.feed, d_fed_[j], job.feed);
    }
  }

 private:
  void step(int t, int count) {
    if (job.luong) {
      unmix(t, count);
      look_back_around(t, count);
    } else if (job.d_output.data) {
      for (int j = 0; j < count; ++j) plus(dh_[j], job.d_output.at(batch_of(j), t), hidden_);
    }
    with_cell(job.kind, [&](auto cell) { cell_back(cell, t, count); });
    for (int j = 0; j < count; ++j) keep(job.d_gates, batch_of(j), t, d_gates_[j], wide_);
    const Block& d_fed = job.luong ? d_fed_ : d_context_;
    multiply(d_gates_, count, w_feed_, [&](int j, int unit, Vec v) {
      if (job.feed_mask.data) v *= load(job.feed_mask.at(batch_of(j), t) + unit, job.feed - unit);
      store(d_fed[j] + unit, v);
    });
    if (job.luong) return;
    for (int j = 0; j < count && job.d_context.data; ++j)
      plus(d_context_[j], job.d_context.at(batch_of(j), t), job.context_size);
    look_back_around(t, count);
  }

  static void plus(float* row, const float* more, int size) {
    for (int i = 0; i < size; i += kLanes) store(row + i, load(row + i) + load(more + i, size - i));
  }

  // From ∂L/∂h̃ to ∂L/∂c, and to ∂L/∂h, which it adds to.
  void unmix(int t, int count) {
    for (int j = 0; j < count; ++j) {
      const int b = batch_of(j);
      const float* output = at(job.output, b, t, job.feed);
      if (job.d_output.data) plus(d_fed_[j], job.d_output.at(b, t), job.feed);
      for (int unit = 0; unit < job.feed; unit += kLanes) {
        const Vec y = load(output + unit, job.feed - unit);
        store(d_mixed_[j] + unit, load(d_fed_[j] + unit) * (1.0f - y * y));
      }
      keep(job.d_mixed, b, t, d_mixed_[j], job.feed);
    }
    multiply(d_mixed_, count, w_mix_, [&](int j, int unit, Vec v) { store(d_both_[j] + unit, v); });
    for (int j = 0; j < count; ++j) {
      const int b = batch_of(j);
      if (job.mix_mask.data) times(d_both_[j], job.mix_mask.at(b, t), mix_);
      plus(dh_[j], d_both_[j] + job.context_size, hidden_);
      fetch(d_context_[j], d_both_[j], job.context_size);
      if (job.d_context.data) plus(d_context_[j], job.d_context.at(b, t), job.context_size);
    }
  }

  // From ∂L/∂c to ∂L/∂h of the h that made the query, which it adds to.
  void look_back_around(int t, int count) {
    if (job.weight_out)
      multiply(d_context_, count, w_out_, [&](int j, int unit, Vec v) { store(d_looked_[j] + unit, v); });
    const Block& d_looked = job.weight_out ? d_looked_ : d_context_;
    for (int j = 0; j < count; ++j) {
      const int b = batch_of(j);
      keep(job.d_seen, b, t, d_context_[j], job.context_size);
      keep(job.d_looked, b, t, d_looked[j], job.value_size);
      const float* query = at(query_rows(), b, t, job.key_size);
      const size_t keys = static_cast<size_t>(b) * job.positions * job.key_size;
      const int all = job.heads * job.positions;
      look_back(job, memory(j, b), query, at(job.head_weights ? job.head_weights : job.weights, b, t, all), d_looked[j],
                job.d_weights.data ? job.d_weights.at(b, t) : nullptr, scratch_, d_query_[j],
                at(job.d_scores, b, t, all), job.d_keys ? job.d_keys + keys : nullptr,
                job.d_vector ? job.d_vector + static_cast<size_t>(b) * job.key_size : nullptr);
      keep(job.d_query, b, t, d_query_[j], job.key_size);
      if (!job.weight_query) plus(dh_[j], d_query_[j], hidden_);
    }
    if (job.weight_query) multiply(d_query_, count, w_query_, [&](int j, int unit, Vec v) { add(dh_[j] + unit, v); });
  }
  const float* query_rows() const {
    if (job.weight_query) return job.query_rows;
    return job.luong ? job.hidden_rows : job.h_entering;
  }

  Vec gate(int b, int t, int which, int unit) const {
    return load(at(job.gates, b, t, wide_) + which * hidden_ + unit, hidden_ - unit);
  }
  void set(int j, int which, int unit, Vec v) const { store(d_gates_[j] + which * hidden_ + unit, v, hidden_ - unit); }
  // ∂L/∂h_{t-1} gets a product's share, as far as the mask had let h through.
  void add_hidden(int j, int unit, Vec v) const {
    if (job.hidden_mask) v *= load(job.hidden_mask + static_cast<size_t>(batch_of(j)) * hidden_ + unit, hidden_ - unit);
    add(dh_[j] + unit, v);
  }

  template <class Cell>
  void cell_back(Cell, int t, int count) {
    constexpr bool kCandidate = Cell::kTraits.candidate;
    for (int j = 0; j < count; ++j) {
      const int b = batch_of(j);
      for (int unit = 0; unit < hidden_; unit += kLanes) {
        const int size = hidden_ - unit;
        Vec gates[Cell::kGates];
        for (int which = 0; which < Cell::kGates; ++which) gates[which] = gate(b, t, which, unit);
        const Vec candidate = kCandidate ? load(at(job.candidate, b, t, hidden_) + unit, size) : Vec{};
        const Vec old = Cell::kPastProduct ? load(at(job.h_entering, b, t, hidden_) + unit, size) : Vec{};
        const auto d = Cell::backward(gates, candidate, old, load(dh_[j] + unit));
        for (int which = 0; which < Cell::kGates; ++which) set(j, which, unit, d.gates[which]);
        if (kCandidate) store(d_candidate_[j] + unit, d.candidate);
        store(dh_[j] + unit, d.h);
      }
      if (kCandidate) keep(job.d_candidate, b, t, d_candidate_[j], hidden_);
    }
    if (kCandidate) multiply(d_candidate_, count, u_n_, [&](int j, int unit, Vec v) { add_hidden(j, unit, v); });
    multiply(d_gates_, count, u_, [&](int j, int unit, Vec v) { add_hidden(j, unit, v); });
  }

  void cell_back(Lstm, int t, int count) {
    for (int j = 0; j < count; ++j)
      for (int unit = 0; unit < hidden_; unit += kLanes) {
        const int b = batch_of(j);
        const Vec gates[4] = {gate(b, t, 0, unit), gate(b, t, 1, unit), gate(b, t, 2, unit), gate(b, t, 3, unit)};
        const Vec old = load(at(job.c_entering, b, t, hidden_) + unit, hidden_ - unit);
        const Vec c = Lstm::new_c(gates[0], gates[1], gates[2], old);
        const auto of_output = Lstm::output_backward(gates[3], c, load(dh_[j] + unit));
        const auto d = Lstm::backward(gates, old, c, of_output.o, load(dc_[j] + unit) + of_output.c, Vec{}, {});
        for (int which = 0; which < 4; ++which) set(j, which, unit, d.gates[which]);
        store(dc_[j] + unit, d.c);
        store(dh_[j] + unit, Vec{});
      }
    multiply(d_gates_, count, u_, [&](int j, int unit, Vec v) { add_hidden(j, unit, v); });
  }

  void cell_back(GruResetBefore, int t, int count) {
    for (int j = 0; j < count; ++j)
      for (int unit = 0; unit < hidden_; unit += kLanes) {
        const int b = batch_of(j);
        const Vec z = gate(b, t, 1, unit), n = gate(b, t, 2, unit);
        const Vec old = load(at(job.h_entering, b, t, hidden_) + unit, hidden_ - unit);
        const auto d = GruResetBefore::update_backward(z, n, old, load(dh_[j] + unit));
        set(j, 1, unit, d.z);
        set(j, 2, unit, d.n);
        store(d_candidate_[j] + unit, d.n);
        store(dh_[j] + unit, d.h);
      }
    multiply(d_candidate_, count, u_n_, [&](int j, int unit, Vec v) {  // ∂L/∂(r∘h)
      const int b = batch_of(j);
      const Vec seen = load(at(job.seen ? job.seen : job.h_entering, b, t, hidden_) + unit, hidden_ - unit);
      const auto d = GruResetBefore::reset_backward(gate(b, t, 0, unit), seen, v);
      set(j, 0, unit, d.r);
      add_hidden(j, unit, d.h);
    });
    multiply(d_gates_, count, u_, [&](int j, int unit, Vec v) { add_hidden(j, unit, v); });
  }

  const Packed u_, u_n_, w_feed_, w_query_, w_out_, w_mix_;
  const Block dh_, dc_, d_fed_, d_gates_, d_candidate_, d_context_, d_looked_, d_query_, d_mixed_, d_both_;
};

template <class Pass>
static void run_attention(const AttentionJob& job, int threads) {
  const Plan plan = AttentionScan::plan(job, threads);
  Workspace probe{0, nullptr, nullptr, Arena(nullptr), Arena(nullptr), Arena(nullptr)};
  Pass(job, plan, probe);
  const auto body = [&](Workspace space) { Pass(job, plan, space).run(); };
  if (!launch(plan, probe.shared.used(), 0, probe.own.used(), body)) run_attention<Pass>(job, 1);
}

}  // namespace unrolled::UNROLLED_NAMESPACE
