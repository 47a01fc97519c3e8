// The pixels of one changed line, computed by the kernels of an instruction set. A picture is grey, column after column:
// pixel (x, y) is at x * high + y.
#pragma once

#include <cstdint>

namespace unrolled {

// Columns that read a quadrilateral of the given picture: with (u, v) the distances from the corner of the first pixel,
// x = x_first + x_across · u + (x_down + x_both · u) · v, and y likewise.
struct LineStrip {
  int64_t begin, end;
  double x_first, x_across, x_down, x_both;
  double y_first, y_across, y_down, y_both;
};

struct LinePixels {
  const uint8_t* given;
  int64_t wide, high;   // of the given picture
  int64_t width;        // of the changed one; it is as high
  const LineStrip* strips;
  int64_t strip_count;
  float other;          // share of the thicker or thinner picture; 0: none
  bool thicker;
  uint32_t blur_centre, blur_side;  // weights of a pixel and of its neighbours, of 2²⁴; 0: no blur
  const float* grain;   // (high, width), or none
  float ink, strength;  // factors of the picture and of its grain
  float scale;          // greys are divided by it
  float* out;           // (width, high)
  uint8_t *picture, *next;  // scratch: width · high each
  uint32_t* blocks;         // scratch: line_blocks(wide, high)
};

// Blocks of 2 × 2 pixels, one for each corner of a pixel, and one outside.
inline constexpr int64_t line_blocks(int64_t wide, int64_t high) { return (wide + 1) * (high + 1) + 1; }

}  // namespace unrolled
