// What the kernels of a decoder with attention share: numbers in memory, and the rows of `Arguments`.
// Compiled for a NUMBER_TYPE, and for the form of the decoder: LUONG, or Bahdanau's.
#pragma once

#include <arguments.h>

struct Vector {
    float at[VECTOR];
};

DEVICE Vector load_vector(const uint16_t* from) {
    const Words words = *reinterpret_cast<const Words*>(from);
    const Pair a = Number::unpack(words.x), b = Number::unpack(words.y), c = Number::unpack(words.z),
               d = Number::unpack(words.w);
    return {{a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y}};
}
DEVICE Vector load_vector(const float* from) {
    Vector vector;
#pragma unroll
    for (int i = 0; i < VECTOR; i += 4) {
        const Words words = *reinterpret_cast<const Words*>(from + i);
        vector.at[i] = float_of(words.x);
        vector.at[i + 1] = float_of(words.y);
        vector.at[i + 2] = float_of(words.z);
        vector.at[i + 3] = float_of(words.w);
    }
    return vector;
}
DEVICE void store_vector(uint16_t* to, const Vector& v) {
    *reinterpret_cast<Words*>(to) = {Number::pack(v.at[0], v.at[1]), Number::pack(v.at[2], v.at[3]),
                                     Number::pack(v.at[4], v.at[5]), Number::pack(v.at[6], v.at[7])};
}
DEVICE void store_vector(float* to, const Vector& v) {
#pragma unroll
    for (int i = 0; i < VECTOR; i += 4)
        *reinterpret_cast<Words*>(to + i) = {bits_of(v.at[i]), bits_of(v.at[i + 1]), bits_of(v.at[i + 2]), bits_of(v.at[i + 3])};
}
DEVICE Pair load_pair(const uint16_t* from) { return Number::unpack(*reinterpret_cast<const uint32_t*>(from)); }
DEVICE Pair load_pair(const float* from) { return *reinterpret_cast<const Pair*>(from); }
DEVICE void store_pair(uint16_t* to, Pair pair) { *reinterpret_cast<uint32_t*>(to) = Number::pack(pair.x, pair.y); }
DEVICE void store_pair(float* to, Pair pair) { *reinterpret_cast<Pair*>(to) = pair; }
DEVICE float load_number(const uint16_t* from) { return Number::unpack(*from).x; }
DEVICE void store_number(uint16_t* to, float number) { *to = static_cast<uint16_t>(Number::pack(number, 0.0f)); }

DEVICE Pair operator+(Pair a, Pair b) { return {a.x + b.x, a.y + b.y}; }
DEVICE Pair operator*(Pair a, Pair b) { return {a.x * b.x, a.y * b.y}; }

// True where the step is before the end of a row.
DEVICE bool is_real(const Arguments& a, int64_t row) { return a.lengths == nullptr || a.step < a.lengths[row]; }
// The row of a sequence of the caller's (B, T, ·), and of one of ours (T, B, ·).
DEVICE int64_t callers(const Arguments& a, int64_t row) { return row * a.steps + a.step; }
DEVICE int64_t ours(const Arguments& a, int64_t row) { return a.step * a.batch + row; }
DEVICE uint16_t* entering_row(const Arguments& a, int64_t row, int64_t step) {
    return a.entering + (step * a.batch + row) * (a.hidden + a.feed);
}
