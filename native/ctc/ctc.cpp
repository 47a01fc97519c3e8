#include "ctc/ctc.h"

#include <cmath>
#include <limits>
#include <vector>

namespace unrolled {

int64_t ctc_frames_needed(const int64_t* target, int64_t length) {
  int64_t needed = length;
  for (int64_t j = 1; j < length; ++j) needed += target[j] == target[j - 1];
  return needed;
}

double ctc_align(const Frames& frames, int blank, const int64_t* target, int64_t length, int32_t* path) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  const int64_t states = 2 * length + 1;
  if (frames.count < ctc_frames_needed(target, length)) return kNever;
  if (frames.count == 0) return 0;
  std::vector<double> score(states, kNever), next(states);
  std::vector<uint8_t> came(frames.count * states);  // how many states each step moved on: 0, 1 or 2
  for (int64_t t = 0; t < frames.count; ++t) {
    const float* x = frames.at(t);
    for (int64_t s = 0; s < states; ++s) {
      const int64_t label = s % 2 ? target[s / 2] : blank;
      double best = t ? score[s] : (s < 2 ? 0 : kNever);
      uint8_t moved = 0;
      if (t && s >= 1 && score[s - 1] > best) best = score[s - 1], moved = 1;
      if (t && s % 2 && s >= 3 && label != target[s / 2 - 1] && score[s - 2] > best) best = score[s - 2], moved = 2;
      next[s] = best + x[label];
      came[t * states + s] = moved;
    }
    score.swap(next);
  }
  int64_t s = states - 1;
  if (states > 1 && score[s - 1] > score[s]) --s;
  const double found = score[s];
  if (!(found > kNever)) return kNever;
  for (int64_t t = frames.count - 1; t >= 0; --t) {
    path[t] = static_cast<int32_t>(s);
    s -= came[t * states + s];
  }
  return found;
}

}  // namespace unrolled
