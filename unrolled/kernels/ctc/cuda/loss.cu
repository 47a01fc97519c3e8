// The CTC loss of a batch: blocks of one sequence compute α, β and the links between equal labels at the same time; then
// the gradient of every frame is computed by a warp.
//
// With labels l_1 … l_L, p_t(k) the probability of k at frame t, and a blank before, between and after the labels
// (Graves et al. 2006, equations 6 to 15):
//
//     α_t(label j) = p_t(l_j) · (α_t-1(label j) + α_t-1(blank j) + [l_j ≠ l_j-1] α_t-1(label j-1))
//     α_t(blank j) = p_t(−) · (α_t-1(blank j) + α_t-1(label j-1))
//
// β is α of the reversed target over the reversed frames, without the last factor p_t: what arrives.
// ∂L/∂log p_t(k) = −Σ over states of k of α_t β_t / p(target).
#include "scaled.cuh"
#include "wave.cuh"

enum class Keeps { NONE, STATES, ARRIVALS };  // of the loss alone, of α, and of β

template <Keeps KEEPS>
struct LossLattice {
    using Number = Scaled;
    static DEVICE Scaled never() { return nothing(); }

    // Pairs are kept where they are in the target as it was given. In reverse, the label after a blank is the one before.
    static constexpr bool REVERSED = KEEPS == Keeps::ARRIVALS;
    static constexpr int ON = REVERSED ? -1 : 1;

    Pairs pairs;
    Scaled blanks[PAIRS], labels[PAIRS];
    Scaled *kept_blanks, *kept_labels;  // of the first pair at the next frame, in (T, 2, S)
    const int left_over;                // labels of the target from the first pair on
    const int64_t kept_stride;

    DEVICE LossLattice(const Sequence& sequence, Scaled* kept)
        : pairs(sequence), left_over(sequence.length - pairs.first), kept_stride(ON * 2 * sequence.given.pairs) {
#pragma unroll
        for (int k = 0; k < PAIRS; k++) blanks[k] = labels[k] = nothing();
        if (pairs.first == 0) blanks[0] = one();  // before the first frame: as after a blank
        kept_blanks = kept + sequence.time_of(0) * 2 * sequence.given.pairs + (REVERSED ? left_over : pairs.first);
        kept_labels = kept_blanks + sequence.given.pairs - (REVERSED ? 1 : 0);
    }

    DEVICE Scaled last() const { return labels[PAIRS - 1]; }

    DEVICE void step(int, Scaled left, float log_blank, const float (&log_labels)[PAIRS]) {
        const Scaled blank = exponential(log_blank);
        bool numbers = log_blank <= MOST_LOG;
#pragma unroll
        for (int k = 0; k < PAIRS; k++) {
            numbers = numbers && log_labels[k] <= MOST_LOG;
            const Scaled over = {left.mantissa, pairs.skips[k] ? left.exponent : NOTHING};
            const Scaled to_blank = sum(blanks[k], left), to_label = sum(labels[k], blanks[k], over);
            left = labels[k];
            blanks[k] = product(to_blank, blank);
            labels[k] = product(to_label, exponential(log_labels[k]));
            if (KEEPS != Keeps::NONE) {
                if (k <= left_over) kept_blanks[ON * k] = REVERSED ? to_blank : blanks[k];
                if (k < left_over) kept_labels[ON * k] = REVERSED ? to_label : labels[k];
            }
        }
        kept_blanks += kept_stride;
        kept_labels += kept_stride;
        pairs.wrong = pairs.wrong || !numbers;
    }
};

// Writes the loss and p(target); barriers are passed by all threads.
template <typename LATTICE>
DEVICE void finish(const Sequence& sequence, const LATTICE& lattice) {
    struct Ends {
        Scaled blank, label;
        int wrong[WARPS];
    };
    static_assert(sizeof(Ends) == ENDS_BYTES, "constants.py and the kernels disagree");
    const Arguments& given = sequence.given;
    Ends& ends = *reinterpret_cast<Ends*>(shared_memory() + wave_bytes<Scaled>());
    const int length = sequence.length;
    const bool wrong = any_lane(lattice.pairs.wrong);
    if (thread_index() % LANES == 0) ends.wrong[thread_index() / LANES] = wrong;
    if (length == 0 && thread_index() == 0) ends.label = nothing();  // an empty target ends in its one blank
#pragma unroll
    for (int k = 0; k < PAIRS; k++) {
        if (lattice.pairs.first + k == length) ends.blank = lattice.blanks[k];
        if (lattice.pairs.first + k == length - 1) ends.label = lattice.labels[k];
    }
    sync_block();
    if (thread_index() != 0) return;
    const Scaled ending = sum(ends.blank, ends.label), total = normal(ending.mantissa, ending.exponent);
    bool any_wrong = false;
    for (int w = 0; w < WARPS; w++) any_wrong = any_wrong || ends.wrong[w] != 0;
    float loss = static_cast<float>(-(total.exponent + static_cast<double>(log2f(total.mantissa))) * 0.69314718055994531);
    if (total.exponent <= NOTHING / 2) loss = float_of(0x7f800000u);
    if (any_wrong) loss = float_of(0x7fc00000u);
    given.losses[sequence.row] = loss;
    if (given.totals != nullptr) reinterpret_cast<Scaled*>(given.totals)[sequence.row] = total;
}

// For each label of a target the next position of the same label, or 0; and HEAD if there is none before.
DEVICE void link(const Sequence& sequence) {
    int* const links = sequence.given.links + sequence.row * sequence.given.pairs;
    for (int j = thread_index(); j < sequence.length; j += THREADS) {
        const int64_t label = sequence.given_label(j);
        int next = j + 1, before = j - 1;
        while (next < sequence.length && sequence.given_label(next) != label) next++;
        while (before >= 0 && sequence.given_label(before) != label) before--;
        links[j] = (next < sequence.length ? next : 0) | (before < 0 ? HEAD : 0);
    }
}

// Blocks: `roles` for each sequence.
KERNEL lattice(KERNEL_ARGUMENT Arguments given) {
    const int roles = static_cast<int>(given.roles), row = block_index() / roles, role = block_index() % roles;
    const Sequence sequence(given, row, role == 1);
    const Target kind = sequence.kind();
    if (kind != Target::HAS_PATHS) {
        if (role == 0 && thread_index() == 0)
            given.losses[row] = float_of(kind == Target::TOO_LONG ? 0x7f800000u : 0x7fc00000u);
        return;
    }
    const int64_t size = given.steps * 2 * given.pairs;
    Scaled* const kept = reinterpret_cast<Scaled*>(given.states) + (2 * row + role) * size;  // unless it is null
    if (roles == 1) {
        LossLattice<Keeps::NONE> alone(sequence, nullptr);
        run_wave(sequence, alone);
        finish(sequence, alone);
    } else if (role == 0) {
        LossLattice<Keeps::STATES> alpha(sequence, kept);
        run_wave(sequence, alpha);
        finish(sequence, alpha);
    } else if (role == 1) {
        LossLattice<Keeps::ARRIVALS> beta(sequence, kept);
        run_wave(sequence, beta);
    } else {
        link(sequence);
    }
}

DEVICE float share_of(Scaled alpha, Scaled arriving, int total) {
    return alpha.mantissa * arriving.mantissa * power_of_two(alpha.exponent + arriving.exponent - total);
}

DEVICE void fill_with_zeros(float* row, int labels) {
    const int lane = thread_index() % LANES;
    if (labels % 4 == 0) {
        for (int v = lane; v < labels / 4; v += LANES) reinterpret_cast<Words*>(row)[v] = {0, 0, 0, 0};
    } else {
        for (int v = lane; v < labels; v += LANES) row[v] = 0.0f;
    }
}

// Blocks: for each sequence, one for every WARPS frames. Shared memory: links (S,), and shares of labels (WARPS, S).
KERNEL gradient(KERNEL_ARGUMENT Arguments given) {
    const int width = static_cast<int>(given.pairs), labels = static_cast<int>(given.labels);
    const int blocks = static_cast<int>((given.steps + WARPS - 1) / WARPS), row = block_index() / blocks;
    const int warp = thread_index() / LANES, lane = thread_index() % LANES;
    const int t = block_index() % blocks * WARPS + warp;
    const Sequence sequence(given, row, false);
    const int length = sequence.length;
    const bool finite = (bits_of(given.losses[row]) & 0x7f800000u) != 0x7f800000u;
    int* const links = reinterpret_cast<int*>(shared_memory());
    float* const shares = reinterpret_cast<float*>(links + width) + warp * width;
    if (finite) {
        for (int j = thread_index(); j < length; j += THREADS) links[j] = given.links[row * given.pairs + j];
    }
    sync_block();
    if (t >= given.steps) return;
    float* const into = given.gradient + (row * given.steps + t) * given.labels;
    fill_with_zeros(into, labels);
    if (!finite || t >= sequence.frames) return;
    const Scaled total = reinterpret_cast<const Scaled*>(given.totals)[row];
    const float scale = -given.d_losses[row * given.d_losses_stride] / total.mantissa;
    const Scaled* const alpha = reinterpret_cast<const Scaled*>(given.states) + (2 * row * given.steps + t) * 2 * width;
    const Scaled* const arriving = alpha + given.steps * 2 * width;
    float of_blank = 0.0f;
    for (int j = lane; j <= length; j += LANES) {
        of_blank += share_of(alpha[j], arriving[j], total.exponent);
        if (j < length) shares[j] = share_of(alpha[width + j], arriving[width + j], total.exponent);
    }
#pragma unroll
    for (int bits = LANES / 2; bits > 0; bits /= 2) of_blank += shuffle_xor(of_blank, bits);
    sync_warp();  // the zeros and the shares of all lanes are written
    if (lane == 0) into[given.blank] = of_blank * scale;
    for (int j = lane; j < length; j += LANES) {
        if ((links[j] & HEAD) == 0) continue;
        float of_label = shares[j];
        for (int next = links[j] & ~HEAD; next != 0; next = links[next]) of_label += shares[next];
        into[sequence.given_label(j)] = of_label * scale;
    }
}
