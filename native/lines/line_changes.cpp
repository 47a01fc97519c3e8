#include "lines/line_changes.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace unrolled {
namespace {

using Pixels = std::vector<uint8_t>;

struct Corner {
  double x, y;
};

// The pixel before a place in a picture, from −½ on: floor, which would be a call without SSE 4.1.
int64_t pixel_before(double place) { return place < 0.0 ? -1 : static_cast<int64_t>(place); }

// The grey between four pixels around (x, y), which is in the picture; pixels beyond an edge are those of the edge.
uint8_t between(const LineChange& change, double x, double y) {
  const uint8_t* given = change.given;
  x -= 0.5;
  y -= 0.5;
  const int64_t column = pixel_before(x), row = pixel_before(y);
  const double dx = x - static_cast<double>(column), dy = y - static_cast<double>(row);
  const uint8_t* left = given + std::max<int64_t>(column, 0) * change.high;
  const uint8_t* right = given + std::min(column + 1, change.wide - 1) * change.high;
  const int64_t here = std::max<int64_t>(row, 0);
  const int64_t next = std::min(row + 1, change.high - 1);
  if ((left[here] | right[here] | left[next] | right[next]) == 0) return 0;  // most of a line is empty
  const double above = left[here] + (right[here] - left[here]) * dx;
  if (row + 1 >= change.high) return static_cast<uint8_t>(above);
  const double below = left[row + 1] + (right[row + 1] - left[row + 1]) * dx;
  return static_cast<uint8_t>(above + (below - above) * dy);
}

// The columns from `begin` to `end` read the quadrilateral of four corners; what is outside the picture is 0.
void warp_strip(const LineChange& change, int64_t begin, int64_t end, const Corner (&corners)[4],
                Pixels& out) {
  const auto [nw, sw, se, ne] = corners;
  const double across = 1.0 / static_cast<double>(end - begin), down = 1.0 / static_cast<double>(change.high);
  const double x_across = (ne.x - nw.x) * across, x_down = (sw.x - nw.x) * down;
  const double y_across = (ne.y - nw.y) * across, y_down = (sw.y - nw.y) * down;
  const double x_both = (se.x - sw.x - ne.x + nw.x) * across * down;
  const double y_both = (se.y - sw.y - ne.y + nw.y) * across * down;
  const double wide = static_cast<double>(change.wide), high = static_cast<double>(change.high);
  for (int64_t column = begin; column < end; ++column) {
    const double u = static_cast<double>(column - begin) + 0.5;
    const double x_top = nw.x + x_across * u, x_slope = x_both * u;
    const double y_top = nw.y + y_across * u, y_slope = y_both * u;
    uint8_t* pixel = out.data() + column * change.high;
    for (int64_t row = 0; row < change.high; ++row) {
      const double v = static_cast<double>(row) + 0.5;
      const double x = x_top + x_down * v + x_slope * v, y = y_top + y_down * v + y_slope * v;
      const bool inside = x >= 0.0 && x < wide && y >= 0.0 && y < high;
      pixel[row] = inside ? between(change, x, y) : 0;
    }
  }
}

void warp(const LineChange& change, Pixels& out) {
  const int64_t edges = change.strips + 1;
  const double high = static_cast<double>(change.high), step = static_cast<double>(change.width) / change.strips;
  const double scale = static_cast<double>(change.wide) / static_cast<double>(change.width);
  const auto moved = [&](int64_t which, int64_t edge) {
    return change.moves[static_cast<size_t>(which * edges + edge)];
  };
  const auto place = [&](int64_t edge) {
    return edge == change.strips ? change.width : static_cast<int64_t>(std::nearbyint(edge * step));
  };
  const auto top = [&](int64_t edge) {
    const double x = static_cast<double>(place(edge)) * scale;
    return Corner{x + change.lean + moved(0, edge), moved(1, edge)};
  };
  const auto bottom = [&](int64_t edge) {
    const double x = static_cast<double>(place(edge)) * scale;
    return Corner{x - change.lean + moved(2, edge), high + moved(3, edge)};
  };
  for (int64_t strip = 0; strip < change.strips; ++strip) {
    const Corner corners[4] = {top(strip), bottom(strip), bottom(strip + 1), top(strip + 1)};
    warp_strip(change, place(strip), place(strip + 1), corners, out);
  }
}

// The darkest or lightest of 3 × 3 pixels, first of each column's neighbours, then of the columns.
void spread(int64_t wide, int64_t high, bool lightest, const Pixels& in, Pixels& out) {
  const auto better = [lightest](uint8_t a, uint8_t b) { return lightest ? std::max(a, b) : std::min(a, b); };
  Pixels along(in.size());
  for (int64_t x = 0; x < wide; ++x) {
    const uint8_t* column = in.data() + x * high;
    uint8_t* to = along.data() + x * high;
    for (int64_t y = 0; y < high; ++y) {
      to[y] = better(better(column[std::max<int64_t>(y - 1, 0)], column[y]), column[std::min(y + 1, high - 1)]);
    }
  }
  for (int64_t x = 0; x < wide; ++x) {
    const uint8_t* before = along.data() + std::max<int64_t>(x - 1, 0) * high;
    const uint8_t* here = along.data() + x * high;
    const uint8_t* after = along.data() + std::min(x + 1, wide - 1) * high;
    uint8_t* to = out.data() + x * high;
    for (int64_t y = 0; y < high; ++y) to[y] = better(better(before[y], here[y]), after[y]);
  }
}

void blend(Pixels& picture, const Pixels& other, float share) {
  for (size_t i = 0; i < picture.size(); ++i) {
    const int here = picture[i], there = other[i];
    picture[i] = static_cast<uint8_t>(static_cast<float>(here) + share * static_cast<float>(there - here));
  }
}

// Three box filters with a fraction at their ends come close to a Gaussian (Gwosdek et al. 2011). Below a deviation
// of 1.4 the boxes are one pixel long, the fraction of each neighbour is `a`, and weights are integers of 24 bits.
void blur(int64_t wide, int64_t high, float deviation, Pixels& picture, Pixels& next) {
  constexpr int kPasses = 3;
  const float variance = deviation * deviation / kPasses;
  float a = -3 * variance;
  a /= 6 * (variance - 1);
  const auto centre = static_cast<uint32_t>(16777216.0f / (a * 2 + 1));
  const uint32_t side = ((1u << 24) - centre) / 2;
  const auto mixed = [=](uint32_t before, uint32_t here, uint32_t after) {
    return static_cast<uint8_t>((here * centre + (before + after) * side + (1u << 23)) >> 24);
  };
  for (int pass = 0; pass < kPasses; ++pass) {
    for (int64_t x = 0; x < wide; ++x) {
      const uint8_t* before = picture.data() + std::max<int64_t>(x - 1, 0) * high;
      const uint8_t* here = picture.data() + x * high;
      const uint8_t* after = picture.data() + std::min(x + 1, wide - 1) * high;
      uint8_t* to = next.data() + x * high;
      for (int64_t y = 0; y < high; ++y) to[y] = mixed(before[y], here[y], after[y]);
    }
    std::swap(picture, next);
  }
  for (int pass = 0; pass < kPasses; ++pass) {
    for (int64_t x = 0; x < wide; ++x) {
      const uint8_t* column = picture.data() + x * high;
      uint8_t* to = next.data() + x * high;
      for (int64_t y = 0; y < high; ++y) {
        to[y] = mixed(column[std::max<int64_t>(y - 1, 0)], column[y], column[std::min(y + 1, high - 1)]);
      }
    }
    std::swap(picture, next);
  }
}

// Fainter ink with noise in it. Numbers are drawn row by row.
void add_grain(int64_t wide, int64_t high, Pcg64& random, Pixels& picture) {
  std::vector<float> grain(picture.size());
  for (float& one : grain) one = random.normal();
  const auto ink = static_cast<float>(random.between(0.6, 1.0)), strength = static_cast<float>(random.between(0.0, 20.0));
  for (int64_t x = 0; x < wide; ++x) {
    for (int64_t y = 0; y < high; ++y) {
      uint8_t& pixel = picture[static_cast<size_t>(x * high + y)];
      const float grey = static_cast<float>(pixel) * ink + grain[static_cast<size_t>(y * wide + x)] * strength;
      pixel = static_cast<uint8_t>(std::lrintf(std::clamp(grey, 0.0f, 255.0f)));
    }
  }
}

void change_line(LineChange& change, Pixels& picture, Pixels& other) {
  picture.resize(static_cast<size_t>(change.width * change.high));
  other.resize(picture.size());
  warp(change, picture);
  if (change.other != 0.0) {
    spread(change.width, change.high, change.thicker, picture, other);
    blend(picture, other, static_cast<float>(change.other));
  }
  if (change.blur != 0.0) blur(change.width, change.high, static_cast<float>(change.blur), picture, other);
  if (change.grainy) add_grain(change.width, change.high, change.random, picture);
}

int64_t rounded(double number) { return std::max<int64_t>(1, static_cast<int64_t>(std::nearbyint(number))); }

}  // namespace

LineChange::LineChange(const LineStrengths& strengths, const uint8_t* given, int64_t wide, int64_t high,
                       const uint64_t* seed)
    : given(given), wide(wide), high(high), random(seed) {
  constexpr int64_t kStrip = 3;  // heights in the length of a strip, about
  const auto tall = static_cast<double>(high);
  width = rounded(static_cast<double>(wide) * (1 + random.between(-strengths.width, strengths.width)));
  strips = rounded(static_cast<double>(width) / static_cast<double>(kStrip * high));
  lean = random.between(-strengths.slant, strengths.slant) * tall / 2;
  moves.resize(static_cast<size_t>(4 * (strips + 1)));
  for (double& move : moves) move = random.between(-strengths.warp, strengths.warp) * tall;
  if (random.uniform() < strengths.thickness) {
    thicker = random.uniform() < 0.5;
    other = random.between(0.1, thicker ? 0.7 : 0.5);
  }
  if (random.uniform() < strengths.blur) blur = random.between(0.3, 1.2);
  grainy = random.uniform() < strengths.noise;
}

void change_lines(std::vector<LineChange>& lines, int64_t steps, float scale, float* out) {
  float scaled[256];
  for (int grey = 0; grey < 256; ++grey) scaled[grey] = static_cast<float>(grey) / scale;
  Pixels picture, other;
  for (LineChange& line : lines) {
    change_line(line, picture, other);
    float* end = std::transform(picture.begin(), picture.end(), out, [&](uint8_t grey) { return scaled[grey]; });
    out += steps * line.high;
    std::fill(end, out, 0.0f);
  }
}

}  // namespace unrolled
