// One step of each cell for one unit, forward and backward. unrolled/cells has the equations.
//
// `x` is the input's part of each gate, `u` the recurrent product's. `unit_weights` are the peepholes i, f, o of an LSTM, or
// the candidate's recurrent bias of a GRU. `saved` is kept for the backward pass. plan.py lists how many of each a cell has.
#pragma once

using Number = NUMBER_TYPE;

struct Unit {
    float h, c;
};

// The gradients of the h and c that left a step, and the states of that step.
struct Outgoing {
    float dh, dc;
    float h_entering, c_entering, c_left;
};

// The gradients of the products u; of the candidate's x where that differs (SEPARATE_CANDIDATE); of the h that entered,
// without the part that comes through u; of the c that entered; of the unit weights.
template <int COUNT>
struct StepGradients {
    float du[COUNT];
    float d_candidate;
    float dh, dc;
    float d_unit_weights[3];
};

template <bool RELU>
struct RNN {
    static DEVICE Unit forward(const float (&x)[1], const float (&u)[1], const float*, Unit, float (&saved)[1]) {
        const float sum = x[0] + u[0];
        saved[0] = RELU ? (sum < 0.0f ? 0.0f : sum) : tanh_of(sum);  // a NaN stays a NaN
        return {saved[0], 0.0f};
    }
    static DEVICE StepGradients<1> backward(const float (&saved)[1], const float*, const Outgoing& outgoing) {
        const float slope = RELU ? (saved[0] > 0.0f ? 1.0f : 0.0f) : 1.0f - saved[0] * saved[0];
        return {{outgoing.dh * slope}, 0.0f, 0.0f, 0.0f, {}};
    }
};

enum Peephole { NONE, CURRENT, PREVIOUS };  // the c that the output gate looks at

template <Peephole PEEPHOLE>
struct LSTM {
    static DEVICE Unit forward(const float (&x)[4], const float (&u)[4], const float* peepholes, Unit entering,
                               float (&saved)[4]) {
        float i = x[0] + u[0], f = x[1] + u[1], g = x[2] + u[2], o = x[3] + u[3];
        if (PEEPHOLE != NONE) {
            i += peepholes[0] * entering.c;
            f += peepholes[1] * entering.c;
        }
        if (PEEPHOLE == PREVIOUS) o += peepholes[2] * entering.c;
        i = sigmoid(i);
        f = sigmoid(f);
        g = tanh_of(g);
        const float c = f * entering.c + i * g;
        if (PEEPHOLE == CURRENT) o += peepholes[2] * c;
        o = sigmoid(o);
        saved[0] = i;
        saved[1] = f;
        saved[2] = g;
        saved[3] = o;
        return {o * tanh_of(c), c};
    }
    static DEVICE StepGradients<4> backward(const float (&saved)[4], const float* peepholes, const Outgoing& outgoing) {
        const float i = saved[0], f = saved[1], g = saved[2], o = saved[3], shown = tanh_of(outgoing.c_left);
        const float d_o = outgoing.dh * shown * o * (1.0f - o);
        float dc = outgoing.dc + outgoing.dh * o * (1.0f - shown * shown);
        if (PEEPHOLE == CURRENT) dc += peepholes[2] * d_o;
        const float d_i = dc * g * i * (1.0f - i);
        const float d_f = dc * outgoing.c_entering * f * (1.0f - f);
        const float d_g = dc * i * (1.0f - g * g);
        float dc_entering = dc * f;
        if (PEEPHOLE != NONE) dc_entering += peepholes[0] * d_i + peepholes[1] * d_f;
        if (PEEPHOLE == PREVIOUS) dc_entering += peepholes[2] * d_o;
        const float seen = PEEPHOLE == CURRENT ? outgoing.c_left : outgoing.c_entering;
        return {{d_i, d_f, d_g, d_o}, 0.0f, 0.0f, dc_entering,
                {d_i * outgoing.c_entering, d_f * outgoing.c_entering, d_o * seen}};
    }
};

// The GRU that resets after the product.
struct GRU {
    static DEVICE Unit forward(const float (&x)[3], const float (&u)[3], const float* bias, Unit entering,
                               float (&saved)[4]) {
        const float r = sigmoid(x[0] + u[0]), z = sigmoid(x[1] + u[1]), seen = u[2] + bias[0];
        const float n = tanh_of(x[2] + r * seen);
        saved[0] = r;
        saved[1] = z;
        saved[2] = n;
        saved[3] = seen;
        return {n + z * (entering.h - n), 0.0f};
    }
    static DEVICE StepGradients<3> backward(const float (&saved)[4], const float*, const Outgoing& outgoing) {
        const float r = saved[0], z = saved[1], n = saved[2], seen = saved[3];
        const float d_n = outgoing.dh * (1.0f - z) * (1.0f - n * n);
        const float d_z = outgoing.dh * (outgoing.h_entering - n) * z * (1.0f - z);
        const float d_r = d_n * seen * r * (1.0f - r);
        return {{d_r, d_z, d_n * r}, d_n, outgoing.dh * z, 0.0f, {d_n * r}};
    }
};

// The GRU that resets before its product, n = tanh(x_n + U_n (r∘h)): two products a step, so its step comes in parts, each
// for a pair of units. `d_rh` is the gradient of r∘h.
struct GRUBefore {
    enum { R, Z, N };

    static DEVICE Pair gate(Pair x, Pair u) { return {sigmoid(x.x + u.x), sigmoid(x.y + u.y)}; }
    static DEVICE Pair candidate(Pair x, Pair u) { return {tanh_of(x.x + u.x), tanh_of(x.y + u.y)}; }
    static DEVICE Pair state(Pair h, Pair z, Pair n) { return {n.x + z.x * (h.x - n.x), n.y + z.y * (h.y - n.y)}; }

    static DEVICE Pair d_candidate(Pair dh, Pair z, Pair n) {
        return {dh.x * (1.0f - z.x) * (1.0f - n.x * n.x), dh.y * (1.0f - z.y) * (1.0f - n.y * n.y)};
    }
    static DEVICE Pair d_update(Pair dh, Pair h, Pair z, Pair n) {
        return {dh.x * (h.x - n.x) * z.x * (1.0f - z.x), dh.y * (h.y - n.y) * z.y * (1.0f - z.y)};
    }
    static DEVICE Pair d_reset(Pair d_rh, Pair h, Pair r) {
        return {d_rh.x * h.x * r.x * (1.0f - r.x), d_rh.y * h.y * r.y * (1.0f - r.y)};
    }
};

using Cell = CELL_TYPE;
