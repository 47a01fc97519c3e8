// Forced alignment of one instruction set: the best path of a target through the frames, in memory that grows with the
// frames plus the labels, not with their product.
//
// Place j is the blank before label j, then label j; a path moves on by one place a frame at most. A frame keeps for each
// place how the best path came there, one byte. Where that is too much, the scores of every sixteenth part are kept, and
// the parts are aligned again from the last to the first: then the state in which a part ends is known, and a part of n
// frames concerns n places. The path is that of one pass over everything, ties included.
#include <algorithm>
#include <limits>
#include <vector>

#include "ctc/ctc.h"
#include "runtime/kernels.h"

namespace unrolled::UNROLLED_NAMESPACE {

constexpr double kUnreached = -std::numeric_limits<double>::infinity();
constexpr int64_t kParts = 16;
constexpr int64_t kOpen = -1;  // the state at the end is not known yet

// Scores of the places from `first` on, after a frame; the place before `first` is never reached.
class Scores {
 public:
  Scores(int64_t first, int64_t places)
      : first_(first), places_(places), blank_(places, kUnreached), label_(places + 1, kUnreached) {}
  double* blank(int64_t j) { return blank_.data() + (j - first_); }
  double* label(int64_t j) { return label_.data() + (j - first_) + 1; }
  int64_t first() const { return first_; }
  int64_t end() const { return first_ + places_; }
  // Takes the places that both have. The one before them is not needed: see `first` in Aligner::solve.
  void take(Scores& other) {
    const int64_t from = std::max(first_, other.first_), to = std::min(end(), other.end());
    std::copy(other.blank(from), other.blank(to), blank(from));
    std::copy(other.label(from), other.label(to), label(from));
  }

 private:
  int64_t first_, places_;
  std::vector<double> blank_, label_;
};

// One frame for n places. A move is bit 0 of a blank (from the label before it); bits 1 and 2 of a label (1: from its
// blank, 2: from the label before it).
template <bool keep>
static void advance(int64_t n, const double* __restrict blank, const double* __restrict label,
                    const double* __restrict heard, const double* __restrict skip, double pause,
                    double* __restrict next_blank, double* __restrict next_label, int64_t* __restrict wide,
                    uint8_t* __restrict moves) {
  for (int64_t j = 0; j < n; ++j) {
    const double stay = label[j], rest = blank[j], before = label[j - 1], jump = before + skip[j];
    const bool left = before > rest;
    next_blank[j] = (left ? before : rest) + pause;
    const bool enters = rest > stay;
    const double near = enters ? rest : stay;
    const bool jumps = jump > near;
    next_label[j] = (jumps ? jump : near) + heard[j];
    if constexpr (keep) wide[j] = (left ? 1 : 0) | (jumps ? 4 : enters ? 2 : 0);
  }
  if constexpr (keep)  // a loop of its own: numbers of one width become vectors
    for (int64_t j = 0; j < n; ++j) moves[j] = static_cast<uint8_t>(wide[j]);
}

class Aligner {
 public:
  explicit Aligner(AlignJob& job)
      : job_(job), labels_(job.length + 1), skip_(job.length + 1, kUnreached), heard_(job.length + 1), wide_(job.length + 1) {
    for (int64_t j = 0; j < job.length; ++j) {
      labels_[j] = static_cast<int32_t>(job.target[j]);
      if (j && job.target[j] != job.target[j - 1]) skip_[j] = 0;
    }
    labels_[job.length] = job.blank;  // there is none behind the last blank
  }

  void run() {
    Scores start(0, job_.length + 1);
    *start.blank(0) = 0;
    job_.found = kUnreached;
    solve(0, job_.frames.count, start, kOpen);
  }

 private:
  // The frames [from, to), which end in a state: writes their path, and returns the state before them.
  int64_t solve(int64_t from, int64_t to, Scores& start, int64_t end) {
    const int64_t frames = to - from, last = end == kOpen ? job_.length : end / 2;
    // of earlier places none leads to the end
    const int64_t first = end == kOpen ? start.first() : std::max(start.first(), last - frames);
    const int64_t places = last - first + 1, lowest = end == kOpen ? last - 1 : last;
    Scores now(first, places), next(first, places);
    now.take(start);
    if (frames * places <= job_.at_once || frames == 1) {
      std::vector<uint8_t> moves(frames * places);
      for (int64_t t = from; t < to; ++t) {
        step<true>(t, lowest - (to - 1 - t), last, now, next, moves.data() + (t - from) * places);
        std::swap(now, next);
      }
      if (end == kOpen && !choose(now, end)) return kOpen;
      return trace(from, to, end, moves.data(), first, places);
    }
    const int64_t parts = std::min(kParts, frames), size = (frames + parts - 1) / parts;
    std::vector<Scores> starts;
    for (int64_t t = from; t < to; ++t) {
      if ((t - from) % size == 0) {
        starts.push_back(now);
        if (end != kOpen && to - t <= size) break;
      }
      step<false>(t, lowest - (to - 1 - t), last, now, next, nullptr);
      std::swap(now, next);
    }
    if (end == kOpen && !choose(now, end)) return kOpen;
    for (int64_t part = static_cast<int64_t>(starts.size()) - 1; part >= 0; --part) {
      end = solve(from + part * size, std::min(to, from + (part + 1) * size), starts[part], end);
      starts.pop_back();
    }
    return end;
  }

  // One frame, of the places that were reached and from `lowest` on, from where the end can be reached.
  template <bool keep>
  void step(int64_t t, int64_t lowest, int64_t last, Scores& now, Scores& next, uint8_t* moves) {
    const int64_t low = std::max(now.first(), lowest), high = std::min(last, t), n = high - low + 1;
    if (n <= 0) return;
    const float* x = job_.frames.at(t);
    for (int64_t j = 0; j < n; ++j) heard_[j] = x[labels_[low + j]];
    advance<keep>(n, now.blank(low), now.label(low), heard_.data(), skip_.data() + low, x[job_.blank], next.blank(low),
                  next.label(low), wide_.data(), keep ? moves + (low - now.first()) : nullptr);
    if (high == job_.length) *next.label(high) = kUnreached;  // there is no label behind the last blank
  }

  bool choose(Scores& now, int64_t& end) {
    const int64_t last = job_.length;
    end = 2 * last;
    job_.found = *now.blank(last);
    if (last && *now.label(last - 1) > job_.found) job_.found = *now.label(last - 1), --end;
    return !(job_.found == kUnreached);
  }

  int64_t trace(int64_t from, int64_t to, int64_t state, const uint8_t* moves, int64_t first, int64_t places) {
    for (int64_t t = to - 1; t >= from; --t) {
      job_.path[t] = static_cast<int32_t>(state);
      const int move = moves[(t - from) * places + state / 2 - first];
      state -= state % 2 ? move >> 1 : move & 1;
    }
    return state;
  }

  AlignJob& job_;
  std::vector<int32_t> labels_;
  std::vector<double> skip_, heard_;
  std::vector<int64_t> wide_;
};

void ctc_align(AlignJob& job) {
  job.found = kUnreached;
  if (job.frames.count < ctc_frames_needed(job.target, job.length)) return;
  if (job.frames.count == 0) {
    job.found = 0;
    return;
  }
  Aligner(job).run();
}

}  // namespace unrolled::UNROLLED_NAMESPACE
