#include "cells/kinds.h"

#include <stdexcept>
#include <string>

namespace unrolled {

void unknown_cell(int number) {
  throw std::invalid_argument("Unknown cell kind " + std::to_string(number) + ". _native.CELLS lists the kinds.");
}

CellKind cell_kind(int number) { return traits_of(static_cast<CellKind>(number)).kind; }

}  // namespace unrolled
