// What is added to the gates of a unit.
#pragma once

template <class Number>
DEVICE float bias_number(const Arguments& a, const void* from, int64_t at) {
    if (from == nullptr) return 0.0f;
    if (a.bias_wide) return static_cast<const float*>(from)[at];
    return Number::unpack(static_cast<const uint16_t*>(from)[at]).x;
}

// Both biases (G, units) of a gate, as far as they are simply added: r multiplies the recurrent one of a GRU's candidate,
// if it resets after the product.
template <class Number, bool RECURRENT>
DEVICE float added_bias(const Arguments& a, int64_t at) {
    return bias_number<Number>(a, a.bias_x, at) + (RECURRENT ? bias_number<Number>(a, a.bias_h, at) : 0.0f);
}
