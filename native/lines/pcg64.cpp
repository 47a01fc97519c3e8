#include "lines/pcg64.h"

#include <array>
#include <cmath>
#include <numbers>

namespace unrolled {
namespace {

// The area under a normal curve as 256 layers of one area (Marsaglia and Tsang 2000). A layer's width is in steps of
// 2⁻²³; the lowest has the curve's tail.
struct Layers {
  static constexpr int kCount = 256;
  static constexpr double kEdge = 3.6541528853610087963519472518;  // where the tail begins
  std::array<uint32_t, kCount> inner;  // steps that are under the curve for certain
  std::array<float, kCount> step, top;

  Layers() {
    const auto height = [](double x) { return std::exp(-0.5 * x * x); };
    const double tail = std::sqrt(std::numbers::pi / 2) * std::erfc(kEdge / std::numbers::sqrt2);
    const double area = kEdge * height(kEdge) + tail, widest = area / height(kEdge);
    set(0, widest, kEdge, 1.0);
    double edge = kEdge;
    for (int i = kCount - 1; i > 0; --i) {
      const double above = i > 1 ? std::sqrt(-2 * std::log(area / edge + height(edge))) : 0.0;
      set(i, edge, above, height(edge));
      edge = above;
    }
  }

  void set(int i, double width, double certain, double height) {
    inner[i] = static_cast<uint32_t>(std::lround(certain / width * 0x1p23));
    step[i] = static_cast<float>(width * 0x1p-23);
    top[i] = static_cast<float>(height);
  }
};

const Layers& layers() {
  static const Layers made;
  return made;
}

}  // namespace

Pcg64::Pcg64(const uint64_t* seed) {
  const auto joined = [](uint64_t high, uint64_t low) { return static_cast<Word>(high) << 64 | low; };
  step_ = joined(seed[2], seed[3]) << 1 | 1;
  bits();
  state_ += joined(seed[0], seed[1]);
  bits();
}

uint32_t Pcg64::half_bits() {
  has_half_ = !has_half_;
  if (!has_half_) return half_;
  const uint64_t both = bits();
  half_ = static_cast<uint32_t>(both >> 32);
  return static_cast<uint32_t>(both);
}

void Pcg64::normals(float* out, int64_t count) {
  Pcg64 here = *this;  // in registers
  for (int64_t i = 0; i < count; ++i) out[i] = here.normal();
  *this = here;
}

float Pcg64::normal() {
  constexpr auto kEdge = static_cast<float>(Layers::kEdge);
  constexpr auto kPerEdge = static_cast<float>(0.27366123732975827203338247596);
  const Layers& table = layers();
  for (;;) {
    const uint32_t drawn = half_bits();
    const uint32_t layer = drawn & 0xff, steps = drawn >> 9;
    const float size = static_cast<float>(steps) * table.step[layer];
    const float x = drawn & 0x100 ? -size : size;
    if (steps < table.inner[layer]) return x;
    if (layer == 0) {
      for (;;) {
        const float beyond = -kPerEdge * std::log1p(-short_uniform());
        const float other = -std::log1p(-short_uniform());
        if (other + other > beyond * beyond) return steps & 0x100 ? -(kEdge + beyond) : kEdge + beyond;
      }
    }
    const float height = (table.top[layer - 1] - table.top[layer]) * short_uniform() + table.top[layer];
    if (height < std::exp(-0.5 * x * x)) return x;
  }
}

}  // namespace unrolled
