// Attention of one query for each row and head to keys at fixed places. PARTS warps share a query, each with every
// PARTS-th group of keys. In a warp SIDE lanes hold a key, 16 bytes each, so that several keys are loaded at once; each
// such group of lanes keeps a softmax of its own keys, with a maximum that moves, until all are merged at the end.
#include "numbers.cuh"

using Numbers = Vector<NUMBER>;
constexpr int COUNT = Numbers::COUNT;     // numbers in 16 bytes
constexpr int SIDE = SIZE / COUNT;        // lanes that hold a key
constexpr int TOGETHER = LANES / SIDE;    // keys in a warp
constexpr float LEAST = -1e30f;           // below every score, and finite: no difference is NaN

struct Softmax {
    float most, sum, mean[COUNT];  // mean: not divided by the sum yet

    DEVICE void scale(float factor) {
        sum *= factor;
#pragma unroll
        for (int i = 0; i < COUNT; i++) mean[i] *= factor;
    }
};

DEVICE Softmax merged(Softmax a, Softmax b) {
    const float most = fmaxf(a.most, b.most);
    a.scale(exp_of(a.most - most));
    b.scale(exp_of(b.most - most));
    a.most = most;
    a.sum += b.sum;
#pragma unroll
    for (int i = 0; i < COUNT; i++) a.mean[i] += b.mean[i];
    return a;
}

struct Query {
    int row, input, head, hypothesis, own;  // own: the place of the new key, -1 without one
    int places;                             // that may be seen
    bool real;
    int64_t in_row, first;  // of its numbers in a row, and of its keys

    DEVICE Query(const Arguments& a, int number) {
        const int width = static_cast<int>(a.width), heads = static_cast<int>(a.heads);
        real = number < static_cast<int>(a.rows) * heads;
        if (!real) number = 0;
        const int of_input = number / width;  // hypotheses of an input and head are next to each other: they share keys
        hypothesis = number - of_input * width;
        input = of_input / heads;
        head = of_input - input * heads;
        row = input * width + hypothesis;
        own = a.position == nullptr ? -1 : static_cast<int>(a.position[row]);
        places = !real ? 0 : a.position == nullptr ? static_cast<int>(a.places) : own + 1;
        in_row = row * a.query_stride + head * SIZE;
        first = input * a.input_stride + head * a.head_stride;
    }

    DEVICE int64_t at(const Arguments& a, int place, int hypothesis) const {
        return first + hypothesis * a.hypothesis_stride + place * a.place_stride;
    }
};

DEVICE Words load(const void* numbers, int64_t at, int part) {
    return *reinterpret_cast<const Words*>(bytes_at(numbers, at + part * COUNT, Numbers::BYTES));
}

struct Seen {
    Words key, value;
    bool inside;
};

DEVICE Seen seen_at(const Arguments& a, const Query& query, int place, int part) {
    Seen seen = {{0, 0, 0, 0}, {0, 0, 0, 0}, place < query.places};
    if (!seen.inside) return seen;
    if (place == query.own) {
        seen.key = load(a.new_keys, query.in_row, part);
        seen.value = load(a.new_values, query.in_row, part);
        return seen;
    }
    if (a.mask != nullptr && !a.mask[query.input * a.places + place]) seen.inside = false;
    const int hypothesis = a.ancestors == nullptr ? 0 : static_cast<int>(a.ancestors[query.row * a.places + place]);
    const int64_t at = query.at(a, place, hypothesis);
    seen.key = load(a.keys, at, part);
    seen.value = load(a.values, at, part);
    return seen;
}

DEVICE void add(Softmax& softmax, const Seen (&seen)[AHEAD], const float (&query)[COUNT]) {
    float scores[AHEAD], most = softmax.most;
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        float key[COUNT];
        Numbers::read(seen[i].key, key);
        float score = 0.0f;
#pragma unroll
        for (int j = 0; j < COUNT; j++) score += query[j] * key[j];
#pragma unroll
        for (int bits = SIDE / 2; bits > 0; bits /= 2) score += shuffle_xor(score, bits);
        scores[i] = seen[i].inside ? score : LEAST;
        most = fmaxf(most, scores[i]);
    }
    softmax.scale(exp_of(softmax.most - most));
    softmax.most = most;
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        const float share = seen[i].inside ? exp_of(scores[i] - most) : 0.0f;
        float value[COUNT];
        Numbers::read(seen[i].value, value);
        softmax.sum += share;
#pragma unroll
        for (int j = 0; j < COUNT; j++) softmax.mean[j] += share * value[j];
    }
}

// Blocks: WARPS / PARTS queries each. Shared memory: a softmax for each lane that holds a part of a key, of each warp.
KERNEL attend_step(KERNEL_ARGUMENT Arguments a) {
    Softmax* const parts = reinterpret_cast<Softmax*>(shared_memory());
    const int warp = thread_index() / LANES, lane = thread_index() % LANES, part = lane % SIDE;
    const int mine = warp % PARTS;
    const Query query(a, block_index() * (WARPS / PARTS) + warp / PARTS);
    float wanted[COUNT];
    Numbers::read(load(a.query, query.in_row, part), wanted);
#pragma unroll
    for (int i = 0; i < COUNT; i++) wanted[i] *= static_cast<float>(a.scale);
    Softmax softmax = {LEAST, 0.0f, {}};
    constexpr int STEP = PARTS * TOGETHER;
    for (int first = mine * TOGETHER; first < query.places; first += AHEAD * STEP) {
        Seen seen[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) seen[i] = seen_at(a, query, first + i * STEP + lane / SIDE, part);
        add(softmax, seen, wanted);
    }
#pragma unroll
    for (int bits = SIDE; bits < LANES; bits *= 2) {
        Softmax other = {shuffle_xor(softmax.most, bits), shuffle_xor(softmax.sum, bits), {}};
#pragma unroll
        for (int i = 0; i < COUNT; i++) other.mean[i] = shuffle_xor(softmax.mean[i], bits);
        softmax = merged(softmax, other);
    }
    if (lane < SIDE) parts[warp * SIDE + lane] = softmax;
    sync_block();
    if (mine > 0 || lane >= SIDE || !query.real) return;
    for (int other = 1; other < PARTS; other++) softmax = merged(softmax, parts[(warp + other) * SIDE + lane]);
    softmax.scale(1.0f / softmax.sum);
    uint8_t* const seen = reinterpret_cast<uint8_t*>(a.seen) + (query.row * a.heads + query.head) * SIZE * Numbers::BYTES;
    reinterpret_cast<Words*>(seen)[lane] = Numbers::words(softmax.mean);
    if (query.own < 0) return;
    const int64_t kept = query.at(a, query.own, query.hypothesis) * Numbers::BYTES;
    reinterpret_cast<Words*>(reinterpret_cast<uint8_t*>(a.keys) + kept)[lane] = load(a.new_keys, query.in_row, part);
    reinterpret_cast<Words*>(reinterpret_cast<uint8_t*>(a.values) + kept)[lane] = load(a.new_values, query.in_row, part);
}
