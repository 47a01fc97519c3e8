// One step of each cell for one unit, and the way back through it. unrolled/cells has the equations.
//
// `x` is the input's part of each gate, `u` the recurrent product's, `own` the unit's own weights: peepholes i, f, o of an
// LSTM, the candidate's recurrent bias of a GRU. `saved` is what the way back wants to know.
#pragma once

struct Unit {
    float h, c;
};

// What enters a step backwards: the gradients of the h and c that leave it, and what is known of the step.
struct Left {
    float dh, dc;
    float h_entering, c_entering, c_left;
};

// What comes out of it: gradients of the products u and, where it is not the same, of the candidate's x; the gradient
// of the h that entered, but for the part that comes through u; the gradient of the c that entered; those of `own`.
template <int GATES>
struct Gone {
    float du[GATES];
    float d_candidate;
    float dh, dc;
    float d_own[3];
};

template <bool RELU>
struct RNN {
    static constexpr int GATES = 1, SAVED = 1, OWN = 0;
    static constexpr bool HAS_MEMORY = false, HAS_CANDIDATE = false;

    static DEVICE Unit forward(const float (&x)[1], const float (&u)[1], const float*, Unit, float (&saved)[1]) {
        const float sum = x[0] + u[0];
        saved[0] = RELU ? (sum < 0.0f ? 0.0f : sum) : tanh_of(sum);  // a NaN stays one
        return {saved[0], 0.0f};
    }
    static DEVICE Gone<1> backward(const float (&saved)[1], const float*, const Left& left) {
        const float slope = RELU ? (saved[0] > 0.0f ? 1.0f : 0.0f) : 1.0f - saved[0] * saved[0];
        return {{left.dh * slope}, 0.0f, 0.0f, 0.0f, {}};
    }
};

enum Peephole { NONE, CURRENT, PREVIOUS };  // which c the output gate looks at

template <Peephole PEEPHOLE>
struct LSTM {
    static constexpr int GATES = 4, SAVED = 4, OWN = PEEPHOLE == NONE ? 0 : 3;
    static constexpr bool HAS_MEMORY = true, HAS_CANDIDATE = false;

    static DEVICE Unit forward(const float (&x)[4], const float (&u)[4], const float* own, Unit entering,
                               float (&saved)[4]) {
        float i = x[0] + u[0], f = x[1] + u[1], g = x[2] + u[2], o = x[3] + u[3];
        if (PEEPHOLE != NONE) {
            i += own[0] * entering.c;
            f += own[1] * entering.c;
        }
        if (PEEPHOLE == PREVIOUS) o += own[2] * entering.c;
        i = sigmoid(i);
        f = sigmoid(f);
        g = tanh_of(g);
        const float c = f * entering.c + i * g;
        if (PEEPHOLE == CURRENT) o += own[2] * c;
        o = sigmoid(o);
        saved[0] = i;
        saved[1] = f;
        saved[2] = g;
        saved[3] = o;
        return {o * tanh_of(c), c};
    }
    static DEVICE Gone<4> backward(const float (&saved)[4], const float* own, const Left& left) {
        const float i = saved[0], f = saved[1], g = saved[2], o = saved[3], shown = tanh_of(left.c_left);
        const float d_o = left.dh * shown * o * (1.0f - o);
        float dc = left.dc + left.dh * o * (1.0f - shown * shown);
        if (PEEPHOLE == CURRENT) dc += own[2] * d_o;
        const float d_i = dc * g * i * (1.0f - i);
        const float d_f = dc * left.c_entering * f * (1.0f - f);
        const float d_g = dc * i * (1.0f - g * g);
        float dc_entering = dc * f;
        if (PEEPHOLE != NONE) dc_entering += own[0] * d_i + own[1] * d_f;
        if (PEEPHOLE == PREVIOUS) dc_entering += own[2] * d_o;
        const float seen = PEEPHOLE == CURRENT ? left.c_left : left.c_entering;
        return {{d_i, d_f, d_g, d_o}, 0.0f, 0.0f, dc_entering, {d_i * left.c_entering, d_f * left.c_entering, d_o * seen}};
    }
};

// The GRU that resets after the product. One that resets before needs two products a step: gru_before.cu.
struct GRU {
    static constexpr int GATES = 3, SAVED = 4, OWN = 1;
    static constexpr bool HAS_MEMORY = false, HAS_CANDIDATE = true;

    static DEVICE Unit forward(const float (&x)[3], const float (&u)[3], const float* own, Unit entering,
                               float (&saved)[4]) {
        const float r = sigmoid(x[0] + u[0]), z = sigmoid(x[1] + u[1]), seen = u[2] + own[0];
        const float n = tanh_of(x[2] + r * seen);
        saved[0] = r;
        saved[1] = z;
        saved[2] = n;
        saved[3] = seen;
        return {n + z * (entering.h - n), 0.0f};
    }
    static DEVICE Gone<3> backward(const float (&saved)[4], const float*, const Left& left) {
        const float r = saved[0], z = saved[1], n = saved[2], seen = saved[3];
        const float d_n = left.dh * (1.0f - z) * (1.0f - n * n);
        const float d_z = left.dh * (left.h_entering - n) * z * (1.0f - z);
        const float d_r = d_n * seen * r * (1.0f - r);
        return {{d_r, d_z, d_n * r}, d_n, left.dh * z, 0.0f, {d_n * r}};
    }
};
