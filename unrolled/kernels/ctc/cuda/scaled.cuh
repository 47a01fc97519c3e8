// Probabilities over thousands of frames, which underflow every floating-point number: a mantissa and a whole exponent
// of its own for each. Sums and products are a dozen cheap instructions, the range has no end, and the relative error is
// that of float32 products (native/ctc/kernels.cpp has the same for a CPU).
#pragma once

#include <device.cuh>

constexpr float LEAST_LOG = -1e6f;  // log-probabilities below are zero probability
constexpr float MOST_LOG = 1e6f;    // above, they are no numbers to work with

struct alignas(8) Scaled {
    float mantissa;
    int exponent;
};

DEVICE int higher(int a, int b) { return a > b ? a : b; }
DEVICE Scaled nothing() { return {1.0f, NOTHING}; }
DEVICE Scaled one() { return {1.0f, 0}; }

// 2^n for n < 128; zero below 2^-126.
DEVICE float power_of_two(int n) { return float_of(static_cast<uint32_t>(higher(n, -127) + 127) << 23); }

// Takes the power of two out of a positive mantissa.
DEVICE Scaled normal(float mantissa, int exponent) {
    const uint32_t bits = bits_of(mantissa);
    return {float_of((bits & 0x7fffffu) | 0x3f800000u), higher(exponent + static_cast<int>(bits >> 23) - 127, NOTHING)};
}

DEVICE Scaled sum(Scaled a, Scaled b) {
    const int top = higher(a.exponent, b.exponent);
    return {fmaf(a.mantissa, power_of_two(a.exponent - top), b.mantissa * power_of_two(b.exponent - top)), top};
}

DEVICE Scaled sum(Scaled a, Scaled b, Scaled c) {
    const int top = higher(higher(a.exponent, b.exponent), c.exponent);
    const float two = fmaf(a.mantissa, power_of_two(a.exponent - top), b.mantissa * power_of_two(b.exponent - top));
    return {fmaf(c.mantissa, power_of_two(c.exponent - top), two), top};
}

DEVICE Scaled product(Scaled a, Scaled b) { return normal(a.mantissa * b.mantissa, a.exponent + b.exponent); }

// e^x = 2^n e^r with |r| ≤ ln 2 / 2; zero for x < LEAST_LOG. Adding the shifter rounds to a whole number, which is then
// in the last bits.
DEVICE Scaled exponential(float x) {
    constexpr float SHIFTER = 12582912.0f;
    constexpr uint32_t SHIFTER_BITS = 0x4b400000u;
    const bool zero = x < LEAST_LOG;
    x = fminf(fmaxf(x, LEAST_LOG), MOST_LOG);
    const float shifted = fmaf(x, 1.44269504088896341f, SHIFTER);
    const float n = shifted - SHIFTER;
    float r = fmaf(n, -0.693359375f, x);
    r = fmaf(n, 2.12194440e-4f, r);
    float p = 1.3814540579915047e-3f;
    p = fmaf(p, r, 8.36874544620514e-3f);
    p = fmaf(p, r, 4.166838899254799e-2f);
    p = fmaf(p, r, 1.666652113199234e-1f);
    p = fmaf(p, r, 4.999999403953552e-1f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    return {p, zero ? NOTHING : static_cast<int>(bits_of(shifted) - SHIFTER_BITS)};
}

DEVICE Scaled shuffle_up(Scaled number) { return {shuffle_up(number.mantissa), shuffle_up(number.exponent)}; }
