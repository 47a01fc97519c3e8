#include <algorithm>
#include <numeric>

#include "recurrence/job.h"

namespace unrolled {

void sort_by_length(const int64_t* lengths, int batch, int steps, int64_t* order, int64_t* active) {
  std::iota(order, order + batch, 0);
  std::stable_sort(order, order + batch, [&](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });
  int64_t count = batch;
  for (int64_t t = 0; t < steps; ++t) {
    while (count > 0 && lengths[order[count - 1]] <= t) --count;
    active[t] = count;
  }
}

}  // namespace unrolled
