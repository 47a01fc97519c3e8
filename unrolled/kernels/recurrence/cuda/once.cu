// One step of a few sequences. Two warps have one unit and read its weights once, one those of x and one those of h; x
// and h themselves, which all warps read, come from the cache. Compiled for one CELL_TYPE, one NUMBER_TYPE and so many ROWS; sizes are arguments, multiples of 8.
#include <device.cuh>

#include <arguments.h>
#include <bias.cuh>
#include <cells.cuh>

using Cell = CELL_TYPE;
using Number = NUMBER_TYPE;
constexpr int GATES = Cell::GATES, WARPS = 8, LANES = 32, UNITS = WARPS / 2;  // of a block

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

// sums[gate][row] = weights[gate] · numbers[row]; weights (GATES, ·, count) begin with the unit's own row.
DEVICE void multiply(float (&sums)[GATES][ROWS], const uint16_t* weights, int64_t gate_stride, const uint16_t* numbers,
                     int64_t row_stride, int64_t count) {
#pragma unroll 2
    for (int64_t column = thread_index() % LANES * 8; column < count; column += LANES * 8) {
        Words own[GATES];
#pragma unroll
        for (int gate = 0; gate < GATES; gate++)
            own[gate] = *reinterpret_cast<const Words*>(weights + gate * gate_stride + column);
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
            const Words words = *reinterpret_cast<const Words*>(numbers + row * row_stride + column);
#pragma unroll
            for (int gate = 0; gate < GATES; gate++) sums[gate][row] += dot(own[gate], words);
        }
    }
#pragma unroll
    for (int gate = 0; gate < GATES; gate++)
#pragma unroll
        for (int row = 0; row < ROWS; row++)
#pragma unroll
            for (int bits = LANES / 2; bits > 0; bits /= 2)
                sums[gate][row] += from_lane_across(sums[gate][row], bits);
}

// `gates_x` is the input (ROWS, inputs) here, `weights` are those of h, `weights_x` those of the input. There are as many
// units as all blocks have.
KERNEL once(GIVEN Arguments a) {
    const int warp = thread_index() / LANES;
    const int64_t unit = static_cast<int64_t>(block_index()) * UNITS + warp / 2;
    const bool of_x = warp % 2 == 0;
    float* sums_of_x = reinterpret_cast<float*>(shared_memory()) + warp / 2 * GATES * ROWS;  // (UNITS, GATES, ROWS)
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
    for (int row = 0; row < ROWS; row++) {  // each row has its lane; an index into registers must be known
        if (thread_index() % LANES != row) continue;
        float x[GATES], u[GATES], own[3] = {}, saved[Cell::SAVED];
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) {
            const bool candidate = Cell::HAS_CANDIDATE && gate + 1 == GATES;
            const int64_t at = gate * a.units + unit;
            x[gate] = sums_of_x[gate * ROWS + row];
            x[gate] += candidate ? added_bias<Number, false>(a, at) : added_bias<Number, true>(a, at);
            u[gate] = sums[gate][row];
            if (candidate) own[0] = bias_number<Number>(a, a.bias_h, at);
        }
        if (!Cell::HAS_CANDIDATE && a.own != nullptr)
            for (int i = 0; i < Cell::OWN; i++) own[i] = a.own[i * a.units + unit];
        const float c = Cell::HAS_MEMORY ? number_at(a.c_initial, row * a.state_row + unit) : 0.0f;
        const Unit left = Cell::forward(x, u, own, {number_at(a.h_initial, row * a.state_row + unit), c}, saved);
        const uint16_t h = static_cast<uint16_t>(Number::pack(left.h, 0.0f));
        a.h_final[row * a.final_row + unit] = h;
        if (a.output != nullptr) a.output[row * a.final_row + unit] = h;
        if (Cell::HAS_MEMORY) a.c_final[row * a.final_row + unit] = static_cast<uint16_t>(Number::pack(left.c, 0.0f));
    }
}
