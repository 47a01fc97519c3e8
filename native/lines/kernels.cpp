// The pixels of a changed line for one instruction set, bit for bit those of Pillow. CMakeLists.txt forbids here to join
// products and sums. Loops are simple so that compilers make vectors of them.
#include "lines/pixels.h"

namespace unrolled::UNROLLED_NAMESPACE {

// The four pixels around every corner in one word each: left above, left below, right above, right below. Pixels beyond
// an edge are those of the edge.
static void gather_blocks(const LinePixels& line) {
  const int64_t high = line.high;
  uint32_t* block = line.blocks;
  for (int64_t x = 0; x <= line.wide; ++x) {
    const uint8_t* left = line.given + (x > 0 ? x - 1 : 0) * high;
    const uint8_t* right = line.given + (x < line.wide ? x : x - 1) * high;
    const auto joined = [=](int64_t above, int64_t below) {
      return static_cast<uint32_t>(left[above] | left[below] << 8 | right[above] << 16) |
             static_cast<uint32_t>(right[below]) << 24;
    };
    block[0] = joined(0, 0);
    for (int64_t y = 1; y < high; ++y) block[y] = joined(y - 1, y);
    block[high] = joined(high - 1, high - 1);
    block += high + 1;
  }
  *block = 0;
}

// Some rows of a column: the block of pixels that each reads, and its place in it.
constexpr int64_t kRows = 32;
struct Reading {
  int32_t at[kRows];
  uint32_t block[kRows];
  double dx[kRows], dy[kRows];
};

// Columns read between four pixels each; what is outside the given picture is 0.
static void warp(const LinePixels& line, const LineStrip& strip) {
  const double wide = static_cast<double>(line.wide), tall = static_cast<double>(line.high);
  const int32_t stride = static_cast<int32_t>(line.high + 1), outside = static_cast<int32_t>(line.wide + 1) * stride;
  Reading reading;
  for (int64_t column = strip.begin; column < strip.end; ++column) {
    const double u = static_cast<double>(column - strip.begin) + 0.5;
    const double x_top = strip.x_first + strip.x_across * u, x_slope = strip.x_both * u, x_down = strip.x_down;
    const double y_top = strip.y_first + strip.y_across * u, y_slope = strip.y_both * u, y_down = strip.y_down;
    for (int64_t first = 0; first < line.high; first += kRows) {
      const int32_t begin = static_cast<int32_t>(first);
      const int32_t count = static_cast<int32_t>(line.high - first < kRows ? line.high - first : kRows);
      for (int32_t i = 0; i < count; ++i) {
        const double v = static_cast<double>(begin + i) + 0.5;
        const double x = x_top + x_down * v + x_slope * v, y = y_top + y_down * v + y_slope * v;
        const bool inside = (x >= 0.0) & (x < wide) & (y >= 0.0) & (y < tall);
        const double right = x - 0.5, down = y - 0.5;  // from the first pixel's middle: −½ or more
        int32_t across = static_cast<int32_t>(right), below = static_cast<int32_t>(down);
        across -= right < static_cast<double>(across) ? 1 : 0;  // floor
        below -= down < static_cast<double>(below) ? 1 : 0;
        reading.dx[i] = right - static_cast<double>(across);
        reading.dy[i] = down - static_cast<double>(below);
        reading.at[i] = inside ? (across + 1) * stride + below + 1 : outside;
      }
      for (int32_t i = 0; i < count; ++i) reading.block[i] = line.blocks[reading.at[i]];
      uint8_t* __restrict to = line.picture + column * line.high + first;
      for (int32_t i = 0; i < count; ++i) {
        const uint32_t block = reading.block[i];
        const int32_t a = block & 255, b = block >> 8 & 255, c = block >> 16 & 255, d = block >> 24;
        const double upper = static_cast<double>(a) + static_cast<double>(c - a) * reading.dx[i];
        const double lower = static_cast<double>(b) + static_cast<double>(d - b) * reading.dx[i];
        to[i] = static_cast<uint8_t>(static_cast<int32_t>(upper + (lower - upper) * reading.dy[i]));
      }
    }
  }
}

// Every pixel from itself and its neighbours in the columns before and after it; those of an edge are their own.
template <class Mix>
static void mix_columns(const LinePixels& line, const uint8_t* __restrict in, uint8_t* __restrict out, Mix mix) {
  const int64_t high = line.high, size = line.width * high;
  const auto run = [=](int64_t begin, int64_t end, int64_t back, int64_t ahead) {
    for (int64_t i = begin; i < end; ++i) out[i] = mix(in[i - back], in[i], in[i + ahead]);
  };
  const int64_t next = line.width > 1 ? high : 0;
  run(0, high, 0, next);
  run(high, size - high, high, high);
  if (next) run(size - high, size, high, 0);
}

// The same of the pixels above and below it.
template <class Mix>
static void mix_rows(const LinePixels& line, const uint8_t* __restrict in, uint8_t* __restrict out, Mix mix) {
  const int64_t high = line.high, size = line.width * high, next = high > 1;
  for (int64_t i = 1; i < size - 1; ++i) out[i] = mix(in[i - 1], in[i], in[i + 1]);
  for (int64_t top = 0; top < size; top += high) {  // above and below was another column
    const int64_t bottom = top + high - 1;
    out[top] = mix(in[top], in[top], in[top + next]);
    out[bottom] = mix(in[bottom - next], in[bottom], in[bottom]);
  }
}

// Mixes the picture with the darkest or lightest of 3 × 3 pixels.
static void spread(const LinePixels& line) {
  uint8_t *picture = line.picture, *next = line.next;
  uint8_t* const along = reinterpret_cast<uint8_t*>(line.out);  // free until the end, and larger
  if (line.thicker) {
    const auto most = [](uint8_t a, uint8_t b, uint8_t c) {
      const uint8_t ab = a > b ? a : b;
      return ab > c ? ab : c;
    };
    mix_rows(line, picture, along, most);
    mix_columns(line, along, next, most);
  } else {
    const auto least = [](uint8_t a, uint8_t b, uint8_t c) {
      const uint8_t ab = a < b ? a : b;
      return ab < c ? ab : c;
    };
    mix_rows(line, picture, along, least);
    mix_columns(line, along, next, least);
  }
  const float share = line.other;
  for (int64_t i = 0; i < line.width * line.high; ++i) {
    const int32_t here = picture[i], there = next[i];
    const float mixed = static_cast<float>(here) + share * static_cast<float>(there - here);
    picture[i] = static_cast<uint8_t>(static_cast<int32_t>(mixed));
  }
}

// Three box filters across and three down: close to a Gaussian (Gwosdek et al. 2011).
static void blur(const LinePixels& line) {
  const uint32_t centre = line.blur_centre, side = line.blur_side;
  const auto mixed = [=](uint32_t before, uint32_t here, uint32_t after) {
    return static_cast<uint8_t>((here * centre + (before + after) * side + (1u << 23)) >> 24);
  };
  mix_columns(line, line.picture, line.next, mixed);
  mix_columns(line, line.next, line.picture, mixed);
  mix_columns(line, line.picture, line.next, mixed);
  mix_rows(line, line.next, line.picture, mixed);
  mix_rows(line, line.picture, line.next, mixed);
  mix_rows(line, line.next, line.picture, mixed);
}

// Fainter ink, with noise in it.
static void add_grain(const LinePixels& line) {
  constexpr float kRound = 12582912.0f;  // 1.5 · 2²³: numbers near it have no fraction
  for (int64_t x = 0; x < line.width; ++x) {
    uint8_t* pixel = line.picture + x * line.high;
    for (int64_t y = 0; y < line.high; ++y) {
      float grey = static_cast<float>(pixel[y]) * line.ink + line.grain[y * line.width + x] * line.strength;
      grey = grey < 0.0f ? 0.0f : grey;
      grey = grey > 255.0f ? 255.0f : grey;
      pixel[y] = static_cast<uint8_t>(static_cast<int32_t>(grey + kRound - kRound));
    }
  }
}

void change_line(const LinePixels& line) {
  gather_blocks(line);
  for (int64_t i = 0; i < line.strip_count; ++i) warp(line, line.strips[i]);
  if (line.other != 0.0f) spread(line);
  if (line.blur_centre != 0) blur(line);
  if (line.grain) add_grain(line);
  const uint8_t* __restrict picture = line.picture;
  float* __restrict out = line.out;
  const float scale = line.scale;
  for (int64_t i = 0; i < line.width * line.high; ++i) out[i] = static_cast<float>(picture[i]) / scale;
}

}  // namespace unrolled::UNROLLED_NAMESPACE
