#include "ctc/ctc.h"

namespace unrolled {

int64_t ctc_frames_needed(const int64_t* target, int64_t length) {
  int64_t needed = length;
  for (int64_t j = 1; j < length; ++j) needed += target[j] == target[j - 1];
  return needed;
}

}  // namespace unrolled
