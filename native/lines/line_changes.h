// Pictures of lines of text, changed by chance: warped, thicker or thinner, blurred. The numbers are Pillow's.
#pragma once

#include <cstdint>

namespace unrolled {

// A picture is grey, column after column: pixel (x, y) is at x * high + y.
struct LineChange {
  int64_t wide, high;   // of the picture that is given
  int64_t width;        // of the changed one; it is as high
  int64_t strips;       // warped one by one; neighbours share corners
  double lean;          // half of the distance that top and bottom move apart, in pixels
  double reach;         // the largest move of a corner, as a share of the height
  const double* moves;  // from 0 to 1: (top or bottom, x or y, strips + 1)
  double other;         // share of the thicker or thinner picture; 0: none
  bool thicker;
  double blur;          // standard deviation in pixels, below 1.4; 0: none
};

void change_line(const LineChange& change, const uint8_t* given, uint8_t* changed);

}  // namespace unrolled
