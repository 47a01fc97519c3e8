#include "lines/line_changes.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/dispatch.h"

namespace unrolled {
namespace {

struct Corner {
  double x, y;
};

int64_t rounded(double number) { return std::max<int64_t>(1, static_cast<int64_t>(std::nearbyint(number))); }

// The columns from `begin` to `end`, and the corners of what they read: above, below, and the same at the other end.
LineStrip strip_of(int64_t begin, int64_t end, int64_t high, Corner nw, Corner sw, Corner se, Corner ne) {
  const double across = 1.0 / static_cast<double>(end - begin), down = 1.0 / static_cast<double>(high);
  return {begin,
          end,
          nw.x,
          (ne.x - nw.x) * across,
          (sw.x - nw.x) * down,
          (se.x - sw.x - ne.x + nw.x) * across * down,
          nw.y,
          (ne.y - nw.y) * across,
          (sw.y - nw.y) * down,
          (se.y - sw.y - ne.y + nw.y) * across * down};
}

std::vector<LineStrip> strips_of(const LineChange& change) {
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
  std::vector<LineStrip> strips;
  for (int64_t i = 0; i < change.strips; ++i) {
    strips.push_back(
        strip_of(place(i), place(i + 1), change.high, top(i), bottom(i), bottom(i + 1), top(i + 1)));
  }
  return strips;
}

// Three box filters with a fraction at their ends come close to a Gaussian (Gwosdek et al. 2011). Below a deviation of
// 1.4 the boxes are one pixel long, the fraction of each neighbour is `a`, and weights are integers of 24 bits.
void set_blur(float deviation, LinePixels& line) {
  const float variance = deviation * deviation / 3;
  float a = -3 * variance;
  a /= 6 * (variance - 1);
  line.blur_centre = static_cast<uint32_t>(16777216.0f / (a * 2 + 1));
  line.blur_side = ((1u << 24) - line.blur_centre) / 2;
}

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
  std::vector<uint8_t> picture, next;
  std::vector<uint32_t> blocks;
  std::vector<float> grain;
  const auto room = [](auto& scratch, int64_t size) {
    if (scratch.size() < static_cast<size_t>(size)) scratch.resize(static_cast<size_t>(size));
    return scratch.data();
  };
  for (LineChange& change : lines) {
    const std::vector<LineStrip> strips = strips_of(change);
    const int64_t size = change.width * change.high;
    LinePixels line{};
    line.given = change.given, line.wide = change.wide, line.high = change.high, line.width = change.width;
    line.strips = strips.data(), line.strip_count = change.strips;
    line.other = static_cast<float>(change.other), line.thicker = change.thicker;
    if (change.blur != 0.0) set_blur(static_cast<float>(change.blur), line);
    if (change.grainy) {
      line.grain = room(grain, size);
      change.random.normals(grain.data(), size);
      line.ink = static_cast<float>(change.random.between(0.6, 1.0));
      line.strength = static_cast<float>(change.random.between(0.0, 20.0));
    }
    line.scale = scale, line.out = out;
    line.picture = room(picture, size), line.next = room(next, size);
    line.blocks = room(blocks, line_blocks(change.wide, change.high));
    kernels().change_line(line);
    std::fill(out + size, out + steps * change.high, 0.0f);
    out += steps * change.high;
  }
}

}  // namespace unrolled
