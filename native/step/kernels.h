// The single step of one instruction set: packed matrix times vector, then the cell.
#pragma once

#include "cells/cells.h"
#include "cells/norm.h"
#include "step/thread_pool.h"
#include "step/products.h"

namespace unrolled::UNROLLED_NAMESPACE {

// Sequences whose sums are in the first-level cache together.
constexpr int kSome = 8;

// part(some) for a few sequences at a time
template <class Part>
static void over_batch(int batch, Part part) {
  for (int begin = 0; begin < batch; begin += kSome) part(Range{begin, batch - begin < kSome ? batch : begin + kSome});
}

// out[b][·] = matrix · x[b], or that much more, for one panel of rows; out is (batch, out_stride) in natural order.
static void multiply_panel(const PackedMatrix& matrix, const Operand& x, int batch, int panel, float* out, int out_stride,
                           bool add) {
  const int first = panel * kPanel;
  alignas(64) float tile[kSome * kPanel];
  over_batch(batch, [&](Range some) {
    panel_sums(matrix, x, some, panel, false, tile);
    for (int b = some.begin; b < some.end; ++b)
      for (int v = 0; v < kPanel && first + v < matrix.rows; v += kLanes) {
        float* to = out + static_cast<size_t>(b) * out_stride + first + v;
        const int count = matrix.rows - first - v;
        const Vec before = add ? load(to, count) : Vec{};
        store(to, before + load(tile + (b - some.begin) * kPanel + v), count);
      }
  });
}

// Runs part(some panels) until all are done, on several threads where that pays. The part is copied: it holds values.
template <class Part>
static void over_panels(int panels, Sharing sharing, Part part) {
  struct Work {
    Part part;
    int panels;
  };
  static_assert(sizeof(Work) <= kMostContext && __is_trivially_copyable(Work));
  const Work work{part, panels};
  share(
      sharing.members < panels ? sharing.members : panels, sharing.long_enough,
      [](const void* data, int id, int count) {
        const Work& w = *static_cast<const Work*>(data);
        w.part(part_of(w.panels, id, count));
      },
      &work, sizeof work);
}

// The step of one layer for a few sequences.
class Step {
 public:
  Step(const StepLayer& layer, const StepRows& rows, float* scratch, Sharing sharing)
      : layer_(layer), rows_(rows), sharing_(sharing), hidden_(layer.hidden) {
    Arena arena(scratch);
    lay_out(arena);
  }

  static size_t scratch_size(const StepLayer& layer, int batch) {
    StepRows rows;
    rows.batch = batch;
    Step step(layer, rows, nullptr, {});
    Arena arena(nullptr);
    step.lay_out(arena);
    return arena.used();
  }

  void run() {
    const Operand x{rows_.x, rows_.x_stride, room_x_, scales_};
    const Operand h{rows_.h, rows_.h_stride, room_h_, scales_ + rows_.batch};
    prepare_operand(layer_.w, x, rows_.batch);
    prepare_operand(layer_.u, h, rows_.batch);
    with_cell(layer_.kind, [&](auto cell) {
      if constexpr (gates_together(cell.kTraits))
        if (layer_.w.gate_rows) return run_together(cell, x, h);
      run_apart(cell, x, h);
    });
    if (layer_.r.rows) project();
  }

 private:
  // All gates of some units, and then their new state.
  template <class Cell>
  void run_together(Cell cell, const Operand& x, const Operand& h) {
    over_panels(layer_.w.panel_count, sharing_, [cell, step = *this, x, h](Range panels) {
      over_batch(step.rows_.batch, [&](Range some) { step.some_units(cell, x, h, panels, some); });
    });
  }
  template <class Cell>
  void some_units(Cell cell, const Operand& x, const Operand& h, Range panels, Range some) const {
    for (int panel = panels.begin; panel < panels.end; ++panel) {
      panel_sums(layer_.w, x, some, panel, false, tile(panel));
      panel_sums(layer_.u, h, some, panel, true, tile(panel));
    }
    for (int b = some.begin; b < some.end; ++b)
      for (int panel = panels.begin; panel < panels.end; ++panel) {
        const int unit = panel * kLanes, count = hidden_ - unit;
        Vec a[kGatesTogether];
        for (int gate = 0; gate < kGatesTogether; ++gate)
          a[gate] = load(tile(panel) + (b - some.begin) * kPanel + gate * kLanes) + biases(gate, unit, count);
        units(cell, b, unit, count, a, Vec{});
      }
  }
  int at_once() const { return rows_.batch < kSome ? rows_.batch : kSome; }
  float* tile(int panel) const { return of_x_ + static_cast<size_t>(panel) * at_once() * kPanel; }

  template <class Cell>
  void run_apart(Cell cell, const Operand& x, const Operand& h) {
    multiply_apart(x, h);
    if (layer_.norm_ih) norm(of_x_, layer_.norm_ih, 0, wide_);
    if (layer_.norm_hh) norm(of_h_, layer_.norm_hh, 0, Cell::kTraits.two_products ? 2 * hidden_ : wide_);
    if constexpr (Cell::kTraits.two_products) candidate_of_reset(h);
    for (int b = 0; b < rows_.batch; ++b) row(cell, b);
  }

  void multiply_apart(const Operand& x, const Operand& h) {
    const bool one_buffer = of_x_ == of_h_;
    over_panels(layer_.w.panel_count, sharing_, [step = *this, x, h, one_buffer](Range panels) {
      const StepLayer& layer = step.layer_;
      const int batch = step.rows_.batch, wide = step.wide_;
      for (int panel = panels.begin; panel < panels.end; ++panel) {
        multiply_panel(layer.w, x, batch, panel, step.of_x_, wide, false);
        if (panel < layer.u.panel_count) multiply_panel(layer.u, h, batch, panel, step.of_h_, wide, one_buffer);
      }
    });
  }

  void lay_out(Arena& arena) {
    const int batch = rows_.batch;
    wide_ = layer_.w.rows;
    const bool apart = layer_.norm_ih || layer_.norm_hh || traits_of(layer_.kind).candidate;
    const size_t tiles = layer_.w.gate_rows ? static_cast<size_t>(layer_.w.panel_count) * at_once() * kPanel : 0;
    const size_t natural = static_cast<size_t>(batch) * wide_ + kLanes;
    of_x_ = arena.take(tiles > natural ? tiles : natural);
    of_h_ = apart ? arena.take(static_cast<size_t>(batch) * wide_ + kLanes) : of_x_;
    room_x_ = arena.take(batch * Operand::row_room(layer_.features));
    room_h_ = arena.take(batch * Operand::row_room(hidden_ > layer_.width ? hidden_ : layer_.width));
    scales_ = arena.take(2 * batch);
    shown_ = arena.take(static_cast<size_t>(batch) * hidden_ + kLanes);
    memory_ = arena.take(hidden_ + kLanes);
  }

  void norm(float* sums, const float* gain, int first, int size) {
    for (int b = 0; b < rows_.batch; ++b) {
      float* row = sums + static_cast<size_t>(b) * wide_ + first;
      normalize(row, size, norm_stats(row, size), gain + first, nullptr, row);
    }
  }

  // W x + b_ih + U h + b_hh of one gate
  Vec total(int b, int gate, int unit, int count) const {
    const size_t at = static_cast<size_t>(b) * wide_ + gate * hidden_ + unit;
    Vec v = load(of_x_ + at, count);
    if (of_h_ != of_x_) v += load(of_h_ + at, count);
    return v + biases(gate, unit, count);
  }
  // W x + b_ih and U h + b_hh of the last gate
  Vec last_of_x(int b, int unit, int count) const { return last(of_x_, layer_.bias_ih, b, unit, count); }
  Vec last_of_h(int b, int unit, int count) const { return last(of_h_, layer_.bias_hh, b, unit, count); }
  Vec last(const float* sums, const float* bias_of, int b, int unit, int count) const {
    const int gate = wide_ / hidden_ - 1;
    return load(sums + static_cast<size_t>(b) * wide_ + gate * hidden_ + unit, count) + bias(bias_of, gate, unit, count);
  }
  Vec biases(int gate, int unit, int count) const {
    return bias(layer_.bias_ih, gate, unit, count) + bias(layer_.bias_hh, gate, unit, count);
  }
  Vec bias(const float* from, int gate, int unit, int count) const {
    return from ? load(from + gate * hidden_ + unit, count) : Vec{};
  }
  static Vec mixed(float keep, Vec old, Vec fresh) { return keep == 0 ? fresh : keep * old + (1.0f - keep) * fresh; }

  float* shown(int b) const { return shown_ + static_cast<size_t>(b) * hidden_; }
  const float* h(int b) const { return rows_.h + b * rows_.h_stride; }
  float* new_h(int b) const { return rows_.new_h + b * rows_.h_stride; }

  // From the sums of one vector of units to its new state.
  template <class Cell>
  void units(Cell, int b, int unit, int count, Vec (&a)[Cell::kTraits.gates], Vec candidate) const {
    const Vec old = load(h(b) + unit, count);
    store(new_h(b) + unit, mixed(layer_.keep_h, old, Cell::forward(a, candidate, old)), count);
  }
  [[gnu::always_inline]] void units(Lstm, int b, int unit, int count, Vec (&a)[4], Vec) const {
    const Peepholes peep{layer_.peephole, layer_.peephole_previous, hidden_, unit};
    const Vec old = load(rows_.c + b * rows_.c_stride + unit, count);
    Lstm::activate(a, old, peep);
    const Vec c = Lstm::update(a, old, peep);
    store(rows_.new_c + b * rows_.c_stride + unit, mixed(layer_.keep_c, old, c), count);
    if (layer_.norm_c) {
      store(memory_ + unit, c, count);
      store(shown(b) + unit, a[3], count);
    } else {
      show(b, unit, count, Lstm::output(a[3], c));
    }
  }

  void show(int b, int unit, int count, Vec fresh) const {
    if (layer_.r.rows) store(shown(b) + unit, fresh, count);
    else store(new_h(b) + unit, mixed(layer_.keep_h, load(h(b) + unit, count), fresh), count);
  }

  template <class Cell>
  void row(Cell cell, int b) {
    constexpr int kGates = Cell::kTraits.gates;
    for (int unit = 0; unit < hidden_; unit += kLanes) {
      const int count = hidden_ - unit;
      Vec a[kGates], candidate = {};
      for (int gate = 0; gate < kGates; ++gate) a[gate] = total(b, gate, unit, count);
      if (Cell::kTraits.candidate) {
        a[kGates - 1] = last_of_x(b, unit, count);
        candidate = last_of_h(b, unit, count);
      }
      units(cell, b, unit, count, a, candidate);
    }
    if (layer_.norm_c) normed_output(b);
  }
  void row(GruResetBefore, int b) {
    for (int unit = 0; unit < hidden_; unit += kLanes) {
      const int count = hidden_ - unit;
      const Vec old = load(h(b) + unit, count), z = load(of_x_ + static_cast<size_t>(b) * wide_ + hidden_ + unit, count);
      Vec n = last_of_x(b, unit, count) + last_of_h(b, unit, count);
      store(new_h(b) + unit, mixed(layer_.keep_h, old, GruResetBefore::candidate(z, n, old)), count);
    }
  }

  // h = o∘tanh(LN(c))
  void normed_output(int b) {
    normalize(memory_, hidden_, norm_stats(memory_, hidden_), layer_.norm_c, layer_.norm_c_bias, memory_);
    for (int unit = 0; unit < hidden_; unit += kLanes) {
      const int count = hidden_ - unit;
      show(b, unit, count, Lstm::output(load(shown(b) + unit, count), load(memory_ + unit, count)));
    }
  }

  void project() {
    const Operand shown{shown_, hidden_, room_h_, scales_};
    prepare_operand(layer_.r, shown, rows_.batch);
    for (int panel = 0; panel < layer_.r.panel_count; ++panel)
      multiply_panel(layer_.r, shown, rows_.batch, panel, of_x_, wide_, false);
    for (int b = 0; b < rows_.batch; ++b)
      for (int unit = 0; unit < layer_.width; unit += kLanes) {
        const int count = layer_.width - unit;
        const Vec fresh = load(of_x_ + static_cast<size_t>(b) * wide_ + unit, count);
        store(new_h(b) + unit, mixed(layer_.keep_h, load(h(b) + unit, count), fresh), count);
      }
  }

  // r and z first (z into its place among the sums of x), then U_n (r∘h) into n's place among the sums of h.
  void candidate_of_reset(const Operand& h_operand) {
    for (int b = 0; b < rows_.batch; ++b)
      for (int unit = 0; unit < hidden_; unit += kLanes) {
        const int count = hidden_ - unit;
        Vec r = total(b, 0, unit, count), z = total(b, 1, unit, count);
        store(shown(b) + unit, GruResetBefore::reset(r, z, load(h(b) + unit, count)), count);
        store(of_x_ + static_cast<size_t>(b) * wide_ + hidden_ + unit, z, count);
      }
    const Operand reset{shown_, hidden_, h_operand.quantized, h_operand.scales};
    prepare_operand(layer_.u_n, reset, rows_.batch);
    float* of_n = of_h_ + 2 * hidden_;
    over_panels(layer_.u_n.panel_count, sharing_, [step = *this, reset, of_n](Range panels) {
      for (int panel = panels.begin; panel < panels.end; ++panel)
        multiply_panel(step.layer_.u_n, reset, step.rows_.batch, panel, of_n, step.wide_, false);
    });
    if (layer_.norm_hh) norm(of_h_, layer_.norm_hh, 2 * hidden_, hidden_);
  }

  const StepLayer& layer_;
  const StepRows rows_;
  const Sharing sharing_;
  const int hidden_;
  int wide_ = 0;
  float *of_x_ = nullptr, *of_h_ = nullptr, *room_x_ = nullptr, *room_h_ = nullptr, *scales_ = nullptr;
  float *shown_ = nullptr, *memory_ = nullptr;
};

static void step_layer(const StepLayer& layer, const StepRows& rows, float* scratch, Sharing sharing) {
  Step(layer, rows, scratch, sharing).run();
}

static size_t step_scratch(const StepLayer& layer, int batch) { return Step::scratch_size(layer, batch); }

}  // namespace unrolled::UNROLLED_NAMESPACE
