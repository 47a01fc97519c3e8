// The cells of this engine by number, and the table of their buffers. Python reads the table as `_native.CELLS`.
#pragma once

namespace unrolled {

enum class CellKind : int { rnn_tanh, rnn_relu, lstm, gru_reset_after, gru_reset_before };

struct CellTraits {
  CellKind kind;
  const char* name;
  int gates;          // G: W and U have G rows for each unit
  bool memory;        // has a state c beside h
  bool candidate;     // saves U_n h + b_hn, or r∘h, of its last gate: that gate's part of U h does not join W x in one sum
  bool two_products;  // U_n waits for r: a second product in each step
};

constexpr CellTraits kCells[] = {
    {CellKind::rnn_tanh, "rnn_tanh", 1, false, false, false},
    {CellKind::rnn_relu, "rnn_relu", 1, false, false, false},
    {CellKind::lstm, "lstm", 4, true, false, false},
    {CellKind::gru_reset_after, "gru_reset_after", 3, false, true, false},
    {CellKind::gru_reset_before, "gru_reset_before", 3, false, true, true},
};

constexpr CellKind kNoCell{-1};  // of a job whose kind was never set

// Exceptions are thrown outside of the kernels' builds (kinds.cpp): no code may be shared by two instruction sets.
[[noreturn]] void unknown_cell(int number);

[[gnu::always_inline]] constexpr const CellTraits& traits_of(CellKind kind) {
  for (const CellTraits& cell : kCells)
    if (cell.kind == kind) return cell;
  unknown_cell(static_cast<int>(kind));
}

// The kind of a number from Python.
CellKind cell_kind(int number);

}  // namespace unrolled
