// One step of a beam search after the network: the best continuations of each row, what they finish, and the hypotheses
// that go on. A block for each row. The order is that of stable sorts: of equal numbers the first comes first.
#include <device.cuh>

#include <arguments.h>

DEVICE double least() { return -1.0 / 0.0; }

DEVICE bool before(double a, int i, double b, int j) {
    const bool no_a = a != a, no_b = b != b;  // a NaN comes first, so that it does not hide
    if (no_a || no_b) return no_a && (!no_b || i < j);
    return a > b || (a == b && i < j);
}

// The place of number i in the order of all.
DEVICE int place_of(const double* numbers, int count, int i) {
    int place = 0;
    for (int j = 0; j < count; j++) place += before(numbers[j], j, numbers[i], i);
    return place;
}

// Shared memory of a row.
struct Kept {
    double* const all;         // (W·K), totals of all continuations
    double* const best;        // (C), of the best
    double* const going;       // (C), of those that did not end
    double* const scores;      // (2W), of the outputs so far and the new ones
    double* const totals;      // (W), of the next step
    int64_t* const places;     // (2W)
    int64_t* const tokens;     // (C)
    int64_t* const origins;    // (C)

    DEVICE Kept(const Arguments& a)
        : all(reinterpret_cast<double*>(shared_memory())),
          best(all + a.width * a.count),
          going(best + a.columns),
          scores(going + a.columns),
          totals(scores + 2 * a.width),
          places(reinterpret_cast<int64_t*>(totals + a.width)),
          tokens(places + 2 * a.width),
          origins(tokens + a.columns) {}
};

DEVICE void rank_all(const Arguments& a, const Kept& kept, int64_t row) {
    const int each = static_cast<int>(a.count), count = static_cast<int>(a.width) * each;
    const double* totals = a.totals + row * a.width;
    for (int i = thread_index(); i < count; i += THREADS)
        kept.all[i] = totals[i / each] + static_cast<double>(a.values[row * count + i]);
    for (int w = thread_index(); w < a.width; w += THREADS)
        a.past_ends[(*a.time * a.rows + row) * a.width + w] = totals[w] + static_cast<double>(a.endings[row * a.width + w]);
    sync_block();
    for (int i = thread_index(); i < count; i += THREADS) {
        const int place = place_of(kept.all, count, i);
        if (place >= a.columns) continue;
        kept.best[place] = kept.all[i];
        kept.origins[place] = i / each;
        kept.tokens[place] = a.best_tokens[row * count + i];
    }
    sync_block();
}

// The continuations enter the history, and those that end the list of outputs.
DEVICE void keep_all(const Arguments& a, const Kept& kept, int64_t row) {
    const int64_t time = *a.time;
    bool inside = false;  // a prefix, in which an end ends nothing, except as the last token
    if (a.forced != nullptr) inside = a.forced[time * a.rows + row] >= 0 && time < a.lengths[row] - 1;
    for (int64_t c = thread_index(); c < a.columns; c += THREADS) {
        const int64_t at = (time * a.rows + row) * a.columns + c;
        a.past_totals[at] = kept.best[c];
        a.past_tokens[at] = kept.tokens[c];
        a.past_origins[at] = kept.origins[c];
        const bool ends = kept.tokens[c] == a.end && !inside;
        kept.going[c] = ends ? least() : kept.best[c];
        if (c >= a.width) continue;
        double score = kept.best[c] / a.divisors[time + 1];
        if (a.cover != nullptr) score += a.cover[row * a.width + kept.origins[c]];
        kept.scores[c] = a.out_scores[row * a.width + c];
        kept.places[c] = a.out_places[row * a.width + c];
        kept.scores[a.width + c] = ends && a.active[row] ? score : least();
        kept.places[a.width + c] = time * a.columns + c;
    }
    sync_block();
}

DEVICE void choose(const Arguments& a, const Kept& kept, int64_t row) {
    const int both = static_cast<int>(2 * a.width), columns = static_cast<int>(a.columns);
    for (int i = thread_index(); i < both; i += THREADS) {
        const int place = place_of(kept.scores, both, i);
        if (place >= a.width) continue;
        a.out_scores[row * a.width + place] = kept.scores[i];
        a.out_places[row * a.width + place] = kept.places[i];
    }
    for (int c = thread_index(); c < columns; c += THREADS) {
        const int place = place_of(kept.going, columns, c);
        if (place >= a.width) continue;
        kept.totals[place] = kept.going[c];
        a.past_chosen[(*a.time * a.rows + row) * a.width + place] = c;
        a.flat[row * a.width + place] = row * a.width + kept.origins[c];
        a.next[row * a.width + place] = kept.tokens[c];
    }
    sync_block();
    for (int w = thread_index(); w < a.width; w += THREADS) {
        const bool far = kept.totals[w] < kept.totals[0] - a.margin;
        a.totals[row * a.width + w] = far ? least() : kept.totals[w];
    }
}

// A row is dropped when its outputs cannot change any more.
DEVICE void close(const Arguments& a, const Kept& kept, int64_t row) {
    const double* outputs = a.out_scores + row * a.width;
    const int64_t time = *a.time + 1;
    const double highest = kept.totals[0];
    bool done;
    if (a.enough) {
        done = outputs[a.width - 1] > least();
    } else {
        const double bound = highest / a.divisors[highest > 0.0 ? time + 1 : a.lengths[row]];
        done = outputs[a.best - 1] >= bound;
    }
    const bool active = a.active[row];
    a.active_steps[row] += active;
    const bool goes_on = active && highest > least() && time < a.lengths[row] && !done;
    a.active[row] = goes_on;
    if (goes_on) *a.going = 1;
}

KERNEL beam_step(KERNEL_ARGUMENT Arguments a) {
    const int64_t row = block_index();
    const Kept kept(a);
    rank_all(a, kept, row);
    keep_all(a, kept, row);
    choose(a, kept, row);
    sync_block();
    if (thread_index() == 0) close(a, kept, row);
}
