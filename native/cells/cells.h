// The cell of a kind: scan, step and attention choose their code here and nowhere else.
#pragma once

#include "cells/gru.h"
#include "cells/lstm.h"
#include "cells/rnn.h"

namespace unrolled::UNROLLED_NAMESPACE {

// visit(Cell{}); a kind without a case is a compile error, a number that is not a kind an exception.
template <class Visit>
[[gnu::always_inline]] static inline void with_cell(CellKind kind, Visit visit) {
  switch (kind) {
    case CellKind::rnn_tanh: return visit(RnnTanh{});
    case CellKind::rnn_relu: return visit(RnnRelu{});
    case CellKind::lstm: return visit(Lstm{});
    case CellKind::gru_reset_after: return visit(GruResetAfter{});
    case CellKind::gru_reset_before: return visit(GruResetBefore{});
  }
  unknown_cell(static_cast<int>(kind));
}

}  // namespace unrolled::UNROLLED_NAMESPACE
