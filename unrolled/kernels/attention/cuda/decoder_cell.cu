// The element-wise parts of a step: the cell, and the tanh of Luong's form, forward and backward. A thread owns two units.
//
// Compiled for one cell of cells.cuh, a number type and LUONG. `products` are [U | W_feed] [h; fed], in blocks of H: the gates;
// with SEPARATE_CANDIDATE U_n h and W_feed,n fed are apart, since r multiplies only the first; a GRU that resets before its
// product (TWO_PRODUCTS) has U_n (r∘h) in `second_products`.
#include <device.cuh>

#include <cells.cuh>
#include <rows.cuh>

constexpr int BLOCKS = GATES + SEPARATE_CANDIDATE;  // P, of the products

// The two columns of a row that a thread owns.
struct Place {
    int64_t row, at, width;
    bool inside;

    DEVICE Place(const Arguments& a, int64_t columns) : width(columns) {
        const int64_t index = (static_cast<int64_t>(block_index()) * THREADS + thread_index()) * 2;
        row = index / width;
        at = index % width;
        inside = row < a.batch;
    }
    DEVICE int64_t in_row() const { return row * width + at; }
};

DEVICE Pair product_at(const Arguments& a, const Place& place, int block) {
    return load_pair(a.products + (place.row * BLOCKS + block) * a.hidden + place.at);
}
DEVICE Pair input_at(const Arguments& a, const Place& place, int gate) {
    return load_pair(a.gates_x + (callers(a, place.row) * GATES + gate) * a.hidden + place.at);
}
DEVICE Pair bias_at(const Arguments& a, const Place& place, int gate) {
    return a.bias_h == nullptr ? Pair{0.0f, 0.0f} : load_pair(a.bias_h + gate * a.hidden + place.at);
}
DEVICE uint16_t* saved_at(const Arguments& a, const Place& place, int which) {
    return a.saved + (ours(a, place.row) * SAVED + which) * a.hidden + place.at;
}
DEVICE float* c_at(const Arguments& a, const Place& place, int64_t step) {
    return a.c_states + (step * a.batch + place.row) * a.hidden + place.at;
}

// h goes to the state, the next step and the caller, or to what W_c multiplies.
DEVICE void store_hidden(const Arguments& a, const Place& place, bool real, Pair h) {
    store_pair(a.h + place.in_row(), h);
    store_pair(entering_row(a, place.row, a.step + 1) + place.at, h);
    if (!real) h = {0.0f, 0.0f};
    if (!LUONG) {
        store_pair(a.output + callers(a, place.row) * a.hidden + place.at, h);
        return;
    }
    const int64_t at = a.value_size + place.at, width = a.value_size + a.hidden;
    if (a.mix_mask != nullptr) h = h * load_pair(a.mix_mask + callers(a, place.row) * width + at);
    store_pair(a.mixing + ours(a, place.row) * width + at, h);
}

// The gradient of the h that a step gave, except for what later steps of its row left in d_h.
DEVICE Pair d_hidden(const Arguments& a, const Place& place, bool real) {
    Pair sum = load_pair(a.d_h + place.in_row()) + load_pair(a.d_entering + place.row * (a.hidden + a.feed) + place.at);
    sum = sum + load_pair(a.d_hidden + place.in_row());
    if (!real) return sum;
    if (!LUONG) return a.d_output == nullptr ? sum : sum + load_pair(a.d_output + callers(a, place.row) * a.hidden + place.at);
    const int64_t at = a.value_size + place.at, width = a.value_size + a.hidden;
    Pair mixed = load_pair(a.d_mixing + place.row * width + at);
    if (a.mix_mask != nullptr) mixed = mixed * load_pair(a.mix_mask + callers(a, place.row) * width + at);
    return sum + mixed;
}
DEVICE void store_d_gate(const Arguments& a, const Place& place, int block, Pair d_gate) {
    store_pair(a.d_gates + (ours(a, place.row) * BLOCKS + block) * a.hidden + place.at, d_gate);
}

#if TWO_PRODUCTS
// r, and r∘h for the second product.
KERNEL reset_hidden(KERNEL_ARGUMENT Arguments a) {
    const Place place(a, a.hidden);
    if (!place.inside) return;
    Pair reset_h = {0.0f, 0.0f};
    if (is_real(a, place.row)) {
        const Pair x = input_at(a, place, Cell::R) + bias_at(a, place, Cell::R);
        const Pair r = Cell::gate(x, product_at(a, place, Cell::R));
        if (a.saved != nullptr) store_pair(saved_at(a, place, Cell::R), r);
        reset_h = r * load_pair(a.h + place.in_row());
    }
    store_pair(a.reset_h + ours(a, place.row) * a.hidden + place.at, reset_h);
}

KERNEL step_cell(KERNEL_ARGUMENT Arguments a) {
    const Place place(a, a.hidden);
    if (!place.inside) return;
    const bool real = is_real(a, place.row);
    Pair h = load_pair(a.h + place.in_row());
    if (real) {
        const Pair of_z = input_at(a, place, Cell::Z) + bias_at(a, place, Cell::Z);
        const Pair of_n = input_at(a, place, Cell::N) + bias_at(a, place, Cell::N) + product_at(a, place, Cell::N);
        const Pair z = Cell::gate(of_z, product_at(a, place, Cell::Z));
        const Pair n = Cell::candidate(of_n, load_pair(a.second_products + place.in_row()));
        h = Cell::state(h, z, n);
        if (a.saved != nullptr) {
            store_pair(saved_at(a, place, Cell::Z), z);
            store_pair(saved_at(a, place, Cell::N), n);
        }
    }
    store_hidden(a, place, real, h);
}

// The gradients of z and of the candidate; `reset_hidden_back` follows the product of the latter.
KERNEL step_cell_back(KERNEL_ARGUMENT Arguments a) {
    const Place place(a, a.hidden);
    if (!place.inside) return;
    const bool real = is_real(a, place.row);
    Pair dh = d_hidden(a, place, real), d_z = {0.0f, 0.0f}, d_n = {0.0f, 0.0f};
    if (real) {
        const Pair z = load_pair(saved_at(a, place, Cell::Z)), n = load_pair(saved_at(a, place, Cell::N));
        d_z = Cell::d_update(dh, load_pair(entering_row(a, place.row, a.step) + place.at), z, n);
        d_n = Cell::d_candidate(dh, z, n);
        dh = dh * z;
    }
    store_pair(a.d_h + place.in_row(), dh);
    store_d_gate(a, place, Cell::Z, d_z);
    store_d_gate(a, place, Cell::N, d_n);
}

KERNEL reset_hidden_back(KERNEL_ARGUMENT Arguments a) {
    const Place place(a, a.hidden);
    if (!place.inside) return;
    Pair d_r = {0.0f, 0.0f};
    if (is_real(a, place.row)) {
        const Pair r = load_pair(saved_at(a, place, Cell::R)), d_rh = load_pair(a.d_reset_h + place.in_row());
        d_r = Cell::d_reset(d_rh, load_pair(entering_row(a, place.row, a.step) + place.at), r);
        store_pair(a.d_h + place.in_row(), load_pair(a.d_h + place.in_row()) + d_rh * r);
    }
    store_d_gate(a, place, Cell::R, d_r);
}
#else
DEVICE void load_unit_weights(const Arguments& a, const Place& place, float (&low)[3], float (&high)[3]) {
#pragma unroll
    for (int i = 0; i < UNIT_WEIGHTS; i++) {
        const Pair pair = SEPARATE_CANDIDATE ? bias_at(a, place, GATES - 1) : load_pair(a.peepholes + i * a.hidden + place.at);
        low[i] = pair.x;
        high[i] = pair.y;
    }
}

KERNEL step_cell(KERNEL_ARGUMENT Arguments a) {
    const Place place(a, a.hidden);
    if (!place.inside) return;
    const bool real = is_real(a, place.row);
    Pair h = load_pair(a.h + place.in_row()), c = {0.0f, 0.0f};
    if (HAS_CELL_STATE) c = load_pair(c_at(a, place, a.step));
    if (real) {
        float x[2][GATES], u[2][GATES], unit_weights[2][3] = {}, saved[2][SAVED];
        load_unit_weights(a, place, unit_weights[0], unit_weights[1]);
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) {
            const bool candidate = SEPARATE_CANDIDATE && gate + 1 == GATES;
            Pair input = input_at(a, place, gate), product = product_at(a, place, gate);
            if (candidate)
                input = input + product_at(a, place, GATES);
            else
                input = input + bias_at(a, place, gate);
            x[0][gate] = input.x;
            x[1][gate] = input.y;
            u[0][gate] = product.x;
            u[1][gate] = product.y;
        }
        const Unit low = Cell::forward(x[0], u[0], unit_weights[0], {h.x, c.x}, saved[0]);
        const Unit high = Cell::forward(x[1], u[1], unit_weights[1], {h.y, c.y}, saved[1]);
        h = {low.h, high.h};
        c = {low.c, high.c};
        if (a.saved != nullptr)
#pragma unroll
            for (int i = 0; i < SAVED; i++) store_pair(saved_at(a, place, i), {saved[0][i], saved[1][i]});
    }
    if (HAS_CELL_STATE) store_pair(c_at(a, place, a.step + 1), c);
    store_hidden(a, place, real, h);
}

KERNEL step_cell_back(KERNEL_ARGUMENT Arguments a) {
    const Place place(a, a.hidden);
    if (!place.inside) return;
    const bool real = is_real(a, place.row);
    const Pair dh = d_hidden(a, place, real);
    if (!real) {  // the state stayed, and so does its gradient
        store_pair(a.d_h + place.in_row(), dh);
#pragma unroll
        for (int block = 0; block < BLOCKS; block++) store_d_gate(a, place, block, {0.0f, 0.0f});
        return;
    }
    float saved[2][SAVED], unit_weights[2][3] = {};
    load_unit_weights(a, place, unit_weights[0], unit_weights[1]);
#pragma unroll
    for (int i = 0; i < SAVED; i++) {
        const Pair pair = load_pair(saved_at(a, place, i));
        saved[0][i] = pair.x;
        saved[1][i] = pair.y;
    }
    Pair dc = {0.0f, 0.0f}, c_entering = dc, c_left = dc;
    const Pair h_entering = load_pair(entering_row(a, place.row, a.step) + place.at);
    if (HAS_CELL_STATE) {
        dc = load_pair(a.d_c + place.in_row());
        c_entering = load_pair(c_at(a, place, a.step));
        c_left = load_pair(c_at(a, place, a.step + 1));
    }
    const StepGradients<GATES> low = Cell::backward(saved[0], unit_weights[0], {dh.x, dc.x, h_entering.x, c_entering.x, c_left.x});
    const StepGradients<GATES> high = Cell::backward(saved[1], unit_weights[1], {dh.y, dc.y, h_entering.y, c_entering.y, c_left.y});
    store_pair(a.d_h + place.in_row(), {low.dh, high.dh});
    if (HAS_CELL_STATE) store_pair(a.d_c + place.in_row(), {low.dc, high.dc});
#pragma unroll
    for (int gate = 0; gate < GATES; gate++) store_d_gate(a, place, gate, {low.du[gate], high.du[gate]});
    if (SEPARATE_CANDIDATE) store_d_gate(a, place, GATES, {low.d_candidate, high.d_candidate});
}
#endif

#if LUONG
// h̃ = tanh(W_c [c; h] + b_c), which is fed to the next step with its dropout.
KERNEL mix(KERNEL_ARGUMENT Arguments a) {
    const Place place(a, a.feed);
    if (!place.inside) return;
    Pair fed = load_pair(a.fed + place.in_row()), output = {0.0f, 0.0f};
    if (is_real(a, place.row)) {
        Pair sum = load_pair(a.mixed_products + place.in_row());
        if (a.bias_mix != nullptr) sum = sum + load_pair(a.bias_mix + place.at);
        fed = output = {tanh_of(sum.x), tanh_of(sum.y)};
    }
    store_pair(a.fed + place.in_row(), fed);
    store_pair(a.output + callers(a, place.row) * a.feed + place.at, output);
    if (a.step + 1 == a.steps) return;
    if (a.feed_mask != nullptr) fed = fed * load_pair(a.feed_mask + (callers(a, place.row) + 1) * a.feed + place.at);
    store_pair(entering_row(a, place.row, a.step + 1) + a.hidden + place.at, fed);
}

KERNEL mix_back(KERNEL_ARGUMENT Arguments a) {
    const Place place(a, a.feed);
    if (!place.inside) return;
    Pair through = load_pair(a.d_entering + place.row * (a.hidden + a.feed) + a.hidden + place.at);
    if (a.feed_mask != nullptr && a.step + 1 < a.steps)
        through = through * load_pair(a.feed_mask + (callers(a, place.row) + 1) * a.feed + place.at);
    Pair d_fed = load_pair(a.d_fed + place.in_row()) + through, d_mixed = {0.0f, 0.0f};
    if (is_real(a, place.row)) {
        const int64_t at = callers(a, place.row) * a.feed + place.at;
        const Pair output = load_pair(a.output + at);
        if (a.d_output != nullptr) d_fed = d_fed + load_pair(a.d_output + at);
        d_mixed = d_fed * Pair{1.0f - output.x * output.x, 1.0f - output.y * output.y};
        d_fed = {0.0f, 0.0f};
    }
    store_pair(a.d_fed + place.in_row(), d_fed);
    store_pair(a.d_mixed + ours(a, place.row) * a.feed + place.at, d_mixed);
}
#endif
