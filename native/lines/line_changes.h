// Pictures of lines of text, changed by chance: warped, thicker or thinner, blurred, with grain. The pixels are those
// of Pillow with NumPy's random numbers (unrolled/data/signals/augment.py).
#pragma once

#include <cstdint>
#include <vector>

#include "lines/pcg64.h"

namespace unrolled {

// Strengths of the changes: those of LineChanges.
struct LineStrengths {
  double warp, slant, width, thickness, blur, noise;
};

// One line's change: all that is drawn before its grain.
struct LineChange {
  LineChange(const LineStrengths& strengths, const uint8_t* given, int64_t wide, int64_t high, const uint64_t* seed);

  const uint8_t* given;
  int64_t wide, high;         // of the given picture
  int64_t width;              // of the changed one; it is as high
  int64_t strips;             // warped one by one; neighbours share corners
  double lean;                // half of the distance that top and bottom move apart, in pixels
  std::vector<double> moves;  // of the corners in pixels: (top or bottom, x or y, strips + 1)
  double other = 0.0;         // share of the thicker or thinner picture; 0: none
  bool thicker = false;
  double blur = 0.0;          // standard deviation in pixels, 1.2 at most; 0: none
  bool grainy = false;
  Pcg64 random;
};

// Writes changed lines side by side, (B, steps, high), with zeros after them; greys become greys / scale.
void change_lines(std::vector<LineChange>& lines, int64_t steps, float scale, float* out);

}  // namespace unrolled
