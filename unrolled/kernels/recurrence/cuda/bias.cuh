// Biases, which are 16-bit numbers or floats (`bias_wide`).
#pragma once

DEVICE float bias_number(const Arguments& a, const void* from, int64_t at) {
    if (from == nullptr) return 0.0f;
    if (a.bias_wide) return static_cast<const float*>(from)[at];
    return Number::unpack(static_cast<const uint16_t*>(from)[at]).x;
}

// The biases (GATES, units) that are added to a gate. With SEPARATE_CANDIDATE the recurrent bias of the candidate is not
// among them: r multiplies it.
DEVICE float added_bias(const Arguments& a, int gate, int64_t at) {
    const bool recurrent = !(SEPARATE_CANDIDATE && gate + 1 == GATES);
    return bias_number(a, a.bias_x, at) + (recurrent ? bias_number(a, a.bias_h, at) : 0.0f);
}
