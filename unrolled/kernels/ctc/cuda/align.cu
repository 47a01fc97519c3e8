// The most likely path of each target (Viterbi), in logarithms and float64. A block for each sequence computes the best
// scores of all states and keeps the moves that lead to them; then it walks back from the end.
#include "wave.cuh"

struct BestLattice {
    using Number = double;
    static DEVICE double never() { return -1.0 / 0.0; }

    Pairs pairs;
    double blanks[PAIRS], labels[PAIRS];
    const Sequence& sequence;

    DEVICE BestLattice(const Sequence& sequence) : pairs(sequence), sequence(sequence) {
#pragma unroll
        for (int k = 0; k < PAIRS; k++) blanks[k] = labels[k] = never();
        if (pairs.first == 0) blanks[0] = 0.0;
    }

    DEVICE double last() const { return labels[PAIRS - 1]; }

    // Of equal scores the path that moved on least is taken.
    DEVICE void step(int frame, double left, float log_blank, const float (&log_labels)[PAIRS]) {
        const Arguments& given = sequence.given;
        uint8_t* const moves = given.moves + (sequence.row * given.steps + frame) * given.pairs;
#pragma unroll
        for (int k = 0; k < PAIRS; k++) {
            double to_blank = blanks[k], to_label = labels[k];
            int blank_move = 0, label_move = 0;
            if (left > to_blank) to_blank = left, blank_move = 1;
            if (blanks[k] > to_label) to_label = blanks[k], label_move = 1;
            if (pairs.skips[k] && left > to_label) to_label = left, label_move = 2;
            left = labels[k];
            blanks[k] = to_blank + log_blank;
            labels[k] = to_label + log_labels[k];
            if (pairs.first + k <= sequence.length) moves[pairs.first + k] = static_cast<uint8_t>(label_move | blank_move << 2);
        }
    }
};

// Blocks: one for each sequence. Shared memory: numbers between warps, the ends, and moves (walk_frames, S).
KERNEL align(KERNEL_ARGUMENT Arguments given) {
    struct Ends {
        double blank, label;
        int wrong[WARPS];
    };
    static_assert(sizeof(Ends) == ENDS_BYTES, "constants.py and the kernels disagree");
    const int row = block_index(), width = static_cast<int>(given.pairs);
    const Sequence sequence(given, row, false);
    const Target kind = sequence.kind();
    if (kind != Target::HAS_PATHS) {
        if (thread_index() == 0) given.scores[row] = kind == Target::TOO_LONG ? BestLattice::never() : 0.0 / 0.0;
        return;
    }
    BestLattice lattice(sequence);
    run_wave(sequence, lattice);

    Ends& ends = *reinterpret_cast<Ends*>(shared_memory() + wave_bytes<double>());
    uint8_t* const walked = reinterpret_cast<uint8_t*>(&ends + 1);
    const int length = sequence.length;
    const bool wrong = any_lane(lattice.pairs.wrong);
    if (thread_index() % LANES == 0) ends.wrong[thread_index() / LANES] = wrong;
    if (length == 0 && thread_index() == 0) ends.label = BestLattice::never();
#pragma unroll
    for (int k = 0; k < PAIRS; k++) {
        if (lattice.pairs.first + k == length) ends.blank = lattice.blanks[k];
        if (lattice.pairs.first + k == length - 1) ends.label = lattice.labels[k];
    }
    sync_block();
    bool any_wrong = false;
    for (int w = 0; w < WARPS; w++) any_wrong = any_wrong || ends.wrong[w] != 0;
    int state = ends.label > ends.blank ? 2 * length - 1 : 2 * length;  // of thread 0, which walks
    if (thread_index() == 0) given.scores[row] = any_wrong ? 0.0 / 0.0 : ends.label > ends.blank ? ends.label : ends.blank;

    const int most = static_cast<int>(given.walk_frames);
    for (int end = sequence.frames; end > 0; end -= most) {
        const int begin = end > most ? end - most : 0;
        const uint8_t* const from = given.moves + (row * given.steps + begin) * given.pairs;
        for (int i = thread_index(); i < (end - begin) * width; i += THREADS) walked[i] = from[i];
        sync_block();
        if (thread_index() == 0) {
            for (int t = end - 1; t >= begin; t--) {
                given.path[row * given.steps + t] = state;
                const int move = walked[(t - begin) * width + state / 2];
                state -= state % 2 ? move & 3 : move >> 2;
            }
        }
        sync_block();
    }
}
