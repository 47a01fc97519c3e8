#include <algorithm>
#include <numeric>

#include "job.h"

namespace unrolled {

int64_t lay_out_rows(const int64_t* lengths, int batch, int steps, int64_t batch_stride, int64_t step_stride,
                     int64_t* order, int64_t* active, int64_t* step_row, int64_t* index) {
  std::iota(order, order + batch, 0);
  std::stable_sort(order, order + batch, [&](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });
  int64_t row = 0, count = batch;
  for (int64_t t = 0; t < steps; ++t) {
    while (count > 0 && lengths[order[count - 1]] <= t) --count;
    active[t] = count;
    step_row[t] = row;
    for (int64_t rank = 0; rank < count; ++rank) index[row++] = order[rank] * batch_stride + t * step_stride;
  }
  return row;
}

}  // namespace unrolled
