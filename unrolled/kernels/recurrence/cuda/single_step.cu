// One step of a few sequences. Two warps own a unit and read its weights once, one for x and one for h; x and h, which all
// warps read, come from the cache. Compiled for one cell, one number type and a number of ROWS; sizes are arguments,
// multiples of VECTOR.
#include <device.cuh>

#include <arguments.h>
#include <cells.cuh>
#include <bias.cuh>

DEVICE float number_at(const uint16_t* numbers, int64_t at) { return Number::unpack(numbers[at]).x; }

DEVICE float dot(const Words& a, const Words& b) {
    const uint32_t left[4] = {a.x, a.y, a.z, a.w}, right[4] = {b.x, b.y, b.z, b.w};
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const Pair l = Number::unpack(left[i]), r = Number::unpack(right[i]);
        sum += l.x * r.x + l.y * r.y;
    }
    return sum;
}

// sums[gate][row] = weights[gate] · numbers[row]; weights (GATES, ·, count) begin with the unit's row.
DEVICE void multiply(float (&sums)[GATES][ROWS], const uint16_t* weights, int64_t gate_stride, const uint16_t* numbers,
                     int64_t row_stride, int64_t count) {
#pragma unroll 2
    for (int64_t column = thread_index() % LANES * VECTOR; column < count; column += LANES * VECTOR) {
        Words fragments[GATES];
#pragma unroll
        for (int gate = 0; gate < GATES; gate++)
            fragments[gate] = *reinterpret_cast<const Words*>(weights + gate * gate_stride + column);
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
            const Words words = *reinterpret_cast<const Words*>(numbers + row * row_stride + column);
#pragma unroll
            for (int gate = 0; gate < GATES; gate++) sums[gate][row] += dot(fragments[gate], words);
        }
    }
#pragma unroll
    for (int gate = 0; gate < GATES; gate++)
#pragma unroll
        for (int row = 0; row < ROWS; row++)
#pragma unroll
            for (int bits = LANES / 2; bits > 0; bits /= 2)
                sums[gate][row] += shuffle_xor(sums[gate][row], bits);
}

// `gates_x` is the input (ROWS, inputs) here, `weights` are those of h, `weights_x` those of the input. All blocks together
// own all units.
KERNEL single_step(KERNEL_ARGUMENT Arguments a) {
    const int warp = thread_index() / LANES;
    const int64_t unit = static_cast<int64_t>(block_index()) * SINGLE_STEP_UNITS + warp / 2;
    const bool of_x = warp % 2 == 0;
    float* sums_of_x = reinterpret_cast<float*>(shared_memory()) + warp / 2 * GATES * ROWS;  // (SINGLE_STEP_UNITS, GATES, ROWS)
    float sums[GATES][ROWS] = {};
    if (of_x)
        multiply(sums, a.weights_x + unit * a.inputs, a.units * a.inputs, a.gates_x, a.gates_x_row, a.inputs);
    else
        multiply(sums, a.weights + unit * a.units, a.units * a.units, a.h_initial, a.state_row, a.units);
    if (of_x && thread_index() % LANES == 0)
#pragma unroll
        for (int gate = 0; gate < GATES; gate++)
#pragma unroll
            for (int row = 0; row < ROWS; row++) sums_of_x[gate * ROWS + row] = sums[gate][row];
    sync_block();
    if (of_x) return;
#pragma unroll
    for (int row = 0; row < ROWS; row++) {  // each row has a lane; unrolled, since registers have no index
        if (thread_index() % LANES != row) continue;
        float x[GATES], u[GATES], unit_weights[3] = {}, saved[SAVED];
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) {
            const int64_t at = gate * a.units + unit;
            x[gate] = sums_of_x[gate * ROWS + row];
            x[gate] += added_bias(a, gate, at);
            u[gate] = sums[gate][row];
            if (SEPARATE_CANDIDATE && gate + 1 == GATES) unit_weights[0] = bias_number(a, a.bias_h, at);
        }
        if (!SEPARATE_CANDIDATE && a.unit_weights != nullptr)
            for (int i = 0; i < UNIT_WEIGHTS; i++) unit_weights[i] = a.unit_weights[i * a.units + unit];
        const float c = HAS_CELL_STATE ? number_at(a.c_initial, row * a.state_row + unit) : 0.0f;
        const Unit left = Cell::forward(x, u, unit_weights, {number_at(a.h_initial, row * a.state_row + unit), c}, saved);
        const uint16_t h = static_cast<uint16_t>(Number::pack(left.h, 0.0f));
        a.h_final[row * a.final_row + unit] = h;
        if (a.output != nullptr) a.output[row * a.final_row + unit] = h;
        if (HAS_CELL_STATE) a.c_final[row * a.final_row + unit] = static_cast<uint16_t>(Number::pack(left.c, 0.0f));
    }
}
