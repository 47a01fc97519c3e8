#include "bind/lines.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "lines/line_changes.h"

namespace nb = nanobind;

namespace unrolled {
namespace {

using Given = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Seeds = nb::ndarray<const uint64_t, nb::shape<-1, 4>, nb::c_contig, nb::device::cpu>;
using Lengths = nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<nb::numpy, float, nb::ndim<3>>;

Table change(const std::vector<Given>& given, const Seeds& seeds, const Lengths& lengths, double warp, double slant,
             double width, double thickness, double blur, double noise, float scale) {
  const size_t count = given.size(), high = count == 0 ? 0 : given[0].shape(1);
  const auto fits = [=](const Given& line) { return line.shape(0) > 0 && line.shape(1) == high; };
  if (high == 0 || seeds.shape(0) != count || lengths.shape(0) != count || !std::ranges::all_of(given, fits)) {
    throw std::invalid_argument("lines (W, H) of one height, 4 words of a seed and a place for the length of each");
  }
  const LineStrengths strengths{warp, slant, width, thickness, blur, noise};
  int64_t steps = 0;
  std::unique_ptr<float[]> pixels;
  {
    nb::gil_scoped_release others_run;
    std::vector<LineChange> lines;
    lines.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      const auto wide = static_cast<int64_t>(given[i].shape(0));
      lines.emplace_back(strengths, given[i].data(), wide, static_cast<int64_t>(high), seeds.data() + 4 * i);
      lengths.data()[i] = lines.back().width;
      steps = std::max(steps, lines.back().width);
    }
    pixels.reset(new float[count * static_cast<size_t>(steps) * high]);
    change_lines(lines, steps, scale, pixels.get());
  }
  float* made = pixels.get();
  const nb::capsule owner(made, [](void* memory) noexcept { delete[] static_cast<float*>(memory); });
  pixels.release();
  return Table(made, {count, static_cast<size_t>(steps), high}, owner);
}

}  // namespace

void bind_lines(nb::module_& m) {
  m.def("change_lines", &change, "Change lines (W, H) by chance and write them side by side, (B, T, H) / scale.");
}

}  // namespace unrolled
