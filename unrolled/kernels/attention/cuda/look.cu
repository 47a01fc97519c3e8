// The attention of one step: scores, softmax and context, and their gradients. A block owns a row of the batch.
//
//     additive  e_s = vᵀ tanh(q + k_s)        dot  e_s = scale·qᵀ k_s        α = softmax(e),  c = Σ_s α_s v_s
//
// Compiled for a number type, LUONG, ADDITIVE, and PROJECTED: whether the query is a product or h itself. Sizes are multiples
// of VECTOR; any number of positions. Positions that `mask` leaves out are not read. GATED: the context is multiplied by β =
// σ(w_β·h + b_β), whose sum is one more column of the query's product, after the first A.
#include <device.cuh>

using Number = NUMBER_TYPE;

#include <rows.cuh>

constexpr int TOGETHER = 4;  // positions that a warp reads at once

// How the threads divide `size` columns: each has VECTOR of them, and those of one group share the positions with others.
struct Columns {
    int64_t chunks;
    int lanes, groups, lane, group;

    DEVICE Columns(int64_t size) : chunks(size / VECTOR) {
        lanes = chunks < THREADS ? static_cast<int>(chunks) : THREADS;
        groups = THREADS / lanes;
        lane = thread_index() % lanes;
        group = thread_index() / lanes;  // `groups` or more: idle
    }
};

// Shared memory; programs.py computes its size.
struct Shared {
    float *query, *vector, *d_context, *positions, *partial;

    DEVICE Shared(const Arguments& a, bool backward) {
        query = reinterpret_cast<float*>(shared_memory());  // (A)
        vector = query + a.key_size;                        // (A)
        d_context = vector + (ADDITIVE ? a.key_size : 0);   // (C)
        partial = d_context + (backward ? a.value_size : 0);  // (groups, C), or (groups, A)
        const int64_t width = backward ? a.key_size : a.value_size;
        positions = partial + Columns(width).groups * width;  // (S): weights, or gradients of scores
    }
};

DEVICE bool seen(const Arguments& a, int64_t row, int64_t position) {
    return position < a.positions && (a.mask == nullptr || a.mask[row * a.positions + position]);
}

// The sum and the maximum over a warp; every lane has it.
DEVICE float warp_sum(float number) {
#pragma unroll
    for (int bits = LANES / 2; bits > 0; bits /= 2) number += shuffle_xor(number, bits);
    return number;
}
DEVICE float larger(float a, float b) { return a > b || a != a ? a : b; }  // a NaN stays one
DEVICE float warp_max(float number) {
#pragma unroll
    for (int bits = LANES / 2; bits > 0; bits /= 2) number = larger(number, shuffle_xor(number, bits));
    return number;
}

#if PROJECTED
DEVICE const float* query_row(const Arguments& a, int64_t row, int64_t step) {
    return a.queries + (step * a.batch + row) * a.query_size;
}
#else
DEVICE const uint16_t* query_row(const Arguments& a, int64_t row, int64_t step) {
    return entering_row(a, row, step + LUONG);  // Luong's form attends after the step
}
#endif

// β, or 1.
DEVICE float gate_of([[maybe_unused]] const Arguments& a, [[maybe_unused]] int64_t row) {
#if GATED
    return sigmoid(query_row(a, row, a.step)[a.key_size]);
#else
    return 1.0f;
#endif
}

DEVICE void share_query(const Arguments& a, const Shared& shared, int64_t row) {
    const auto* query = query_row(a, row, a.step);
    for (int64_t at = thread_index() * VECTOR; at < a.key_size; at += THREADS * VECTOR) {
        store_vector(shared.query + at, load_vector(query + at));
        if (ADDITIVE) store_vector(shared.vector + at, load_vector(a.vector + at));
    }
}

// One position's share of a score, for VECTOR columns.
DEVICE float score_of(const Vector& query, const Vector& key, const Vector& vector) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
        sum += ADDITIVE ? vector.at[i] * tanh_of(query.at[i] + key.at[i]) : query.at[i] * key.at[i];
    return sum;
}
DEVICE float product_of(const Vector& a, const Vector& b) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) sum += a.at[i] * b.at[i];
    return sum;
}

// For every position that is seen: `term(columns from, its row)` summed over `width` columns, given to `use(position, sum)`.
template <typename TERM, typename USE>
DEVICE void each_position(const Arguments& a, int64_t row, const uint16_t* memory, int64_t width, TERM term, USE use) {
    const int warp = thread_index() / LANES, lane = thread_index() % LANES;
    const uint16_t* rows = memory + row * a.positions * width;
    for (int64_t first = warp; first < a.positions; first += TOGETHER * WARPS) {
        float sums[TOGETHER] = {};
        bool real[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) real[i] = seen(a, row, first + i * WARPS);
        for (int64_t at = lane * VECTOR; at < width; at += LANES * VECTOR) {
            Vector read[TOGETHER];
#pragma unroll
            for (int i = 0; i < TOGETHER; i++)
                if (real[i]) read[i] = load_vector(rows + (first + i * WARPS) * width + at);
#pragma unroll
            for (int i = 0; i < TOGETHER; i++)
                if (real[i]) sums[i] += term(at, read[i]);
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const float sum = warp_sum(sums[i]);
            if (lane == 0 && first + i * WARPS < a.positions) use(first + i * WARPS, real[i], sum);
        }
    }
}

// For VECTOR columns at a time: the sum of `term(position, columns from, its row)` over positions, given to `use(from, sums)`.
template <typename TERM, typename USE>
DEVICE void each_column(const Arguments& a, int64_t row, const uint16_t* memory, int64_t width, float* partial, TERM term,
                        USE use) {
    const Columns columns(width);
    const uint16_t* rows = memory + row * a.positions * width;
    for (int64_t chunk = columns.lane; columns.group < columns.groups && chunk < columns.chunks; chunk += columns.lanes) {
        Vector sums = {};
#pragma unroll 4
        for (int64_t position = columns.group; position < a.positions; position += columns.groups) {
            if (!seen(a, row, position)) continue;
            term(position, chunk * VECTOR, load_vector(rows + position * width + chunk * VECTOR), sums);
        }
        store_vector(partial + columns.group * width + chunk * VECTOR, sums);
    }
    sync_block();
    for (int64_t at = thread_index() * VECTOR; at < width; at += THREADS * VECTOR) {
        Vector sums = load_vector(partial + at);
        for (int group = 1; group < columns.groups; group++) {
            const Vector more = load_vector(partial + group * width + at);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) sums.at[i] += more.at[i];
        }
        use(at, sums);
    }
}

// The dropout of VECTOR numbers of the context, where it is fed to the cell or mixed with h.
DEVICE void drop_context(const Arguments& a, int64_t row, int64_t at, Vector& context) {
    const uint16_t* masks = LUONG ? a.mix_mask : a.feed_mask;
    if (masks == nullptr) return;
    const Vector mask = load_vector(masks + callers(a, row) * (a.value_size + (LUONG ? a.hidden : 0)) + at);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) context.at[i] *= mask.at[i];
}

// The context goes to the caller and, with dropout, to what the step multiplies.
DEVICE void store_context(const Arguments& a, int64_t row, int64_t at, Vector context) {
    store_vector(a.context + callers(a, row) * a.value_size + at, context);
    uint16_t* to = LUONG ? a.mixing + ours(a, row) * (a.value_size + a.hidden) : entering_row(a, row, a.step) + a.hidden;
    drop_context(a, row, at, context);
    store_vector(to + at, context);
}
DEVICE void store_weight(const Arguments& a, int64_t row, int64_t position, float weight) {
    store_number(a.weights + callers(a, row) * a.positions + position, weight);
    if (a.kept_weights != nullptr) a.kept_weights[ours(a, row) * a.positions + position] = weight;
}

KERNEL attend(KERNEL_ARGUMENT Arguments a) {
    const int64_t row = block_index();
    if (!is_real(a, row)) {
        for (int64_t at = thread_index() * VECTOR; at < a.value_size; at += THREADS * VECTOR) store_context(a, row, at, {});
        for (int64_t position = thread_index(); position < a.positions; position += THREADS) store_weight(a, row, position, 0.0f);
        return;
    }
    const Shared shared(a, false);
    share_query(a, shared, row);
    sync_block();
    const float lowest = float_of(0xff800000u), scale = static_cast<float>(a.scale);
    each_position(
        a, row, a.keys, a.key_size,
        [&](int64_t at, const Vector& key) {
            return score_of(load_vector(shared.query + at), key, ADDITIVE ? load_vector(shared.vector + at) : Vector{});
        },
        [&](int64_t position, bool real, float sum) {
            shared.positions[position] = real ? (ADDITIVE ? sum : scale * sum) : lowest;
        });
    sync_block();

    // Every warp computes the same maximum and sum, so that none waits for another.
    const int lane = thread_index() % LANES;
    float largest = lowest, total = 0.0f;
    for (int64_t position = lane; position < a.positions; position += LANES) largest = larger(shared.positions[position], largest);
    largest = warp_max(largest);
    const bool empty = largest == lowest;  // no position is seen: all weights are zero
    for (int64_t position = lane; position < a.positions; position += LANES)
        total += empty ? 0.0f : exp_of(shared.positions[position] - largest);
    total = warp_sum(total);
    sync_block();
    for (int64_t position = thread_index(); position < a.positions; position += THREADS) {
        const float weight = empty || !seen(a, row, position) ? 0.0f : exp_of(shared.positions[position] - largest) / total;
        shared.positions[position] = weight;
        store_weight(a, row, position, weight);
    }
    sync_block();
    const float gate = gate_of(a, row);
    each_column(
        a, row, a.values, a.value_size, shared.partial,
        [&](int64_t position, int64_t, const Vector& value, Vector& sums) {
            const float weight = shared.positions[position];
#pragma unroll
            for (int i = 0; i < VECTOR; i++) sums.at[i] += weight * value.at[i];
        },
        [&](int64_t at, Vector context) {
#pragma unroll
            for (int i = 0; i < VECTOR; i++) context.at[i] *= gate;
            store_context(a, row, at, context);
        });
}

// The gradient of the query goes through W_q, or is that of h itself.
DEVICE void store_d_query(const Arguments& a, int64_t row, int64_t at, const Vector& d_query) {
    if (PROJECTED)
        store_vector(a.d_queries + ours(a, row) * a.query_size + at, d_query);
    else
        store_vector(a.d_hidden + row * a.hidden + at, d_query);
}
// The gradient of the gate's sum as two numbers, since it is added up over all rows and steps, and zeros after them.
DEVICE void store_d_gate(const Arguments& a, int64_t row, float d_sum) {
    const float first = Number::unpack(Number::pack(d_sum, 0.0f)).x;
    if (GATED && thread_index() == 0) store_d_query(a, row, a.key_size, {first, d_sum - first});
}

KERNEL attend_back(KERNEL_ARGUMENT Arguments a) {
    const int64_t row = block_index();
    float* d_contexts = a.d_contexts + ours(a, row) * a.value_size;
    float* d_scores = a.d_scores + ours(a, row) * a.positions;
    if (!is_real(a, row)) {
        for (int64_t at = thread_index() * VECTOR; at < a.value_size; at += THREADS * VECTOR) store_vector(d_contexts + at, {});
        for (int64_t position = thread_index(); position < a.positions; position += THREADS) d_scores[position] = 0.0f;
        for (int64_t at = thread_index() * VECTOR; at < a.key_size; at += THREADS * VECTOR) store_d_query(a, row, at, {});
        store_d_gate(a, row, 0.0f);
        return;
    }
    const Shared shared(a, true);
    share_query(a, shared, row);
    const float gate = gate_of(a, row);
    const float* through = LUONG ? a.d_mixing + row * (a.value_size + a.hidden) : a.d_entering + row * (a.hidden + a.feed) + a.hidden;
    for (int64_t at = thread_index() * VECTOR; at < a.value_size; at += THREADS * VECTOR) {
        Vector d_context = load_vector(through + at);
        drop_context(a, row, at, d_context);
        if (a.d_context != nullptr) {
            const Vector more = load_vector(a.d_context + callers(a, row) * a.value_size + at);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) d_context.at[i] += more.at[i];
        }
#pragma unroll
        for (int i = 0; i < VECTOR; i++) d_context.at[i] *= gate;
        store_vector(shared.d_context + at, d_context);
        store_vector(d_contexts + at, d_context);
    }
    const auto d_weight = [&](int64_t position) {
        return a.d_weights == nullptr ? 0.0f : load_number(a.d_weights + callers(a, row) * a.positions + position);
    };
    sync_block();
    each_position(
        a, row, a.values, a.value_size,
        [&](int64_t at, const Vector& value) { return product_of(load_vector(shared.d_context + at), value); },
        [&](int64_t position, bool real, float sum) {
            shared.positions[position] = real ? sum + d_weight(position) : 0.0f;
        });
    sync_block();
    const float* weights = a.kept_weights + ours(a, row) * a.positions;
    float mean = 0.0f, d_gate = 0.0f;  // Σ α dα, and β dβ: its part that comes from the context; in every warp the same
    for (int64_t position = thread_index() % LANES; position < a.positions; position += LANES) {
        mean += weights[position] * shared.positions[position];
        if (GATED) d_gate += weights[position] * (shared.positions[position] - d_weight(position));
    }
    mean = warp_sum(mean);
    if (GATED) d_gate = warp_sum(d_gate);
    store_d_gate(a, row, (1.0f - gate) * d_gate);
    sync_block();
    for (int64_t position = thread_index(); position < a.positions; position += THREADS) {
        const float d_score = weights[position] * (shared.positions[position] - mean);
        shared.positions[position] = d_score;
        d_scores[position] = d_score;
    }
    sync_block();
    each_column(
        a, row, a.keys, a.key_size, shared.partial,
        [&](int64_t position, int64_t at, const Vector& key, Vector& sums) {
            const float d_score = shared.positions[position];
            const Vector query = ADDITIVE ? load_vector(shared.query + at) : Vector{};
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
                const float shown = ADDITIVE ? tanh_of(query.at[i] + key.at[i]) : 0.0f;
                sums.at[i] += d_score * (ADDITIVE ? 1.0f - shown * shown : key.at[i]);
            }
        },
        [&](int64_t at, Vector d_query) {
            const Vector vector = ADDITIVE ? load_vector(shared.vector + at) : Vector{};
#pragma unroll
            for (int i = 0; i < VECTOR; i++) d_query.at[i] *= ADDITIVE ? vector.at[i] : static_cast<float>(a.scale);
            store_d_query(a, row, at, d_query);
        });
}

#if ADDITIVE
// After all steps, the gradients of keys and vector: dk_s = Σ_t de_ts v (1 - tanh²(q_t + k_s)), dv = Σ de_ts tanh(q_t + k_s).
// A block owns TOGETHER positions of a row, a thread two columns of each.
KERNEL keys_back(KERNEL_ARGUMENT Arguments a) {
    const int64_t tiles = (a.positions + TOGETHER - 1) / TOGETHER;
    const int64_t row = block_index() / tiles, first = block_index() % tiles * TOGETHER;
    const int64_t steps = a.lengths != nullptr && a.lengths[row] < a.steps ? a.lengths[row] : a.steps;
    for (int64_t at = thread_index() * 2; at < a.key_size; at += THREADS * 2) {
        const Pair vector = load_pair(a.vector + at);
        Pair keys[TOGETHER], d_keys[TOGETHER] = {}, d_vector = {0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const bool real = seen(a, row, first + i);
            keys[i] = real ? load_pair(a.keys + (row * a.positions + first + i) * a.key_size + at) : Pair{0.0f, 0.0f};
        }
#pragma unroll 4
        for (int64_t step = 0; step < steps; step++) {
            const Pair query = load_pair(query_row(a, row, step) + at);
            const float* d_scores = a.d_scores + (step * a.batch + row) * a.positions;
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) {
                const float d_score = first + i < a.positions ? d_scores[first + i] : 0.0f;
                const Pair shown = {tanh_of(query.x + keys[i].x), tanh_of(query.y + keys[i].y)};
                d_keys[i].x += d_score * (1.0f - shown.x * shown.x);
                d_keys[i].y += d_score * (1.0f - shown.y * shown.y);
                d_vector.x += d_score * shown.x;
                d_vector.y += d_score * shown.y;
            }
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            if (first + i < a.positions) store_pair(a.d_keys + (row * a.positions + first + i) * a.key_size + at, d_keys[i] * vector);
        store_pair(a.d_vectors + block_index() * a.key_size + at, d_vector);
    }
}
#endif
