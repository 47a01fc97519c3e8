// NumPy's default generator, PCG64 (O'Neill 2014), and the distributions of it that lines are changed by: the same
// numbers as numpy.random.Generator gives, bit for bit.
#pragma once

#include <bit>
#include <cstdint>

namespace unrolled {

class Pcg64 {
  using Word = unsigned __int128;

 public:
  // `seed` are the four words that NumPy's SeedSequence gives.
  explicit Pcg64(const uint64_t* seed);

  uint64_t bits() {
    constexpr Word kFactor = static_cast<Word>(2549297995355413924u) << 64 | 4865540595714422341u;
    state_ = state_ * kFactor + step_;
    const auto high = static_cast<uint64_t>(state_ >> 64), low = static_cast<uint64_t>(state_);
    return std::rotr(high ^ low, static_cast<int>(high >> 58));
  }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // random()
  double between(double low, double high) { return low + (high - low) * uniform(); }  // uniform(low, high)
  void normals(float* out, int64_t count);  // standard_normal(count, dtype=float32)

 private:
  uint32_t half_bits();
  float normal();
  float short_uniform() { return static_cast<float>(half_bits() >> 8) * 0x1p-24f; }

  Word state_ = 0, step_ = 0;
  bool has_half_ = false;  // 32 bits wait for the next use of half_bits()
  uint32_t half_ = 0;
};

}  // namespace unrolled
