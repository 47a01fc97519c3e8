#include "lines/line_changes.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
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
uint8_t between(const LineChange& change, const uint8_t* given, double x, double y) {
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
void warp_strip(const LineChange& change, const uint8_t* given, int64_t begin, int64_t end, const Corner (&corners)[4],
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
      pixel[row] = inside ? between(change, given, x, y) : 0;
    }
  }
}

void warp(const LineChange& change, const uint8_t* given, Pixels& out) {
  const int64_t edges = change.strips + 1;
  const double high = static_cast<double>(change.high), step = static_cast<double>(change.width) / change.strips;
  const double scale = static_cast<double>(change.wide) / static_cast<double>(change.width);
  const auto moved = [&](int64_t which, int64_t edge) {
    return (-change.reach + (change.reach + change.reach) * change.moves[which * edges + edge]) * high;
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
    warp_strip(change, given, place(strip), place(strip + 1), corners, out);
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

// Three box filters with a fraction at their ends come close to a Gaussian (Gwosdek et al. 2011). Here the boxes are
// one pixel long, the fraction of each neighbour is `a`, and weights are integers of 24 bits.
void blur(int64_t wide, int64_t high, float deviation, Pixels& picture) {
  constexpr int kPasses = 3;
  const float variance = deviation * deviation / kPasses;
  if (std::floor((std::sqrt(12.0 * variance + 1.0) - 1.0) / 2.0) != 0.0) {
    throw std::invalid_argument("a blur of 1.4 pixels or more");
  }
  float a = -3 * variance;
  a /= 6 * (variance - 1);
  const auto centre = static_cast<uint32_t>(16777216.0f / (a * 2 + 1));
  const uint32_t side = ((1u << 24) - centre) / 2;
  const auto mixed = [=](uint32_t before, uint32_t here, uint32_t after) {
    return static_cast<uint8_t>((here * centre + (before + after) * side + (1u << 23)) >> 24);
  };
  Pixels next(picture.size());
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

}  // namespace

void change_line(const LineChange& change, const uint8_t* given, uint8_t* changed) {
  Pixels picture(static_cast<size_t>(change.width * change.high));
  warp(change, given, picture);
  if (change.other != 0.0) {
    Pixels other(picture.size());
    spread(change.width, change.high, change.thicker, picture, other);
    blend(picture, other, static_cast<float>(change.other));
  }
  if (change.blur != 0.0) blur(change.width, change.high, static_cast<float>(change.blur), picture);
  std::copy(picture.begin(), picture.end(), changed);
}

}  // namespace unrolled
