#include "bind/lines.h"

#include <nanobind/ndarray.h>

#include <stdexcept>

#include "lines/line_changes.h"

namespace nb = nanobind;

namespace unrolled {
namespace {

using Given = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Changed = nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Moves = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void change(const Given& given, const Changed& changed, const Moves& moves, double lean, double reach, double other,
            bool thicker, double blur) {
  const auto edges = static_cast<int64_t>(moves.shape(0)) / 4;
  if (given.shape(1) != changed.shape(1) || edges < 2 || given.size() == 0 || changed.size() == 0) {
    throw std::invalid_argument("a line (W, H), its changed one (W2, H) and 4 moves for each edge of 1 strip or more");
  }
  const LineChange job{static_cast<int64_t>(given.shape(0)), static_cast<int64_t>(given.shape(1)),
                       static_cast<int64_t>(changed.shape(0)), edges - 1, lean, reach, moves.data(), other, thicker,
                       blur};
  const uint8_t* from = given.data();
  uint8_t* to = changed.data();
  nb::gil_scoped_release others_run;
  change_line(job, from, to);
}

}  // namespace

void bind_lines(nb::module_& m) {
  m.def("change_line", &change, "Warp, thicken and blur the picture of a line, column after column.");
}

}  // namespace unrolled
