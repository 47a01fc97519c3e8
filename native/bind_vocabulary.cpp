#include "bind_vocabulary.h"

#include "dispatch.h"
#include "vocabulary.h"

namespace nb = nanobind;

namespace unrolled {
namespace {

template <class Pointer>
Pointer at(uintptr_t address) {
  return reinterpret_cast<Pointer>(address);
}

}  // namespace

void bind_vocabulary(nb::module_& m) {
  m.def("top_scores",
        [](uintptr_t scores, int64_t rows, int size, int64_t row_stride, int best, uintptr_t blocked,
           int64_t blocked_stride, uintptr_t values, uintptr_t tokens, uintptr_t totals, int threads) {
          TopJob job;
          job.rows = rows, job.size = size, job.best = best;
          job.scores = at<const float*>(scores), job.row_stride = row_stride;
          job.blocked = at<const uint8_t*>(blocked), job.blocked_stride = blocked_stride;
          job.values = at<float*>(values), job.tokens = at<int64_t*>(tokens), job.totals = at<float*>(totals);
          kernels().top_scores(job, threads);
        },
        nb::call_guard<nb::gil_scoped_release>(), "The best few scores of each row; see vocabulary.h.");
  m.def("cross_entropy",
        [](uintptr_t scores, int64_t rows, int size, int64_t row_stride, bool narrow, bool gradient, float smoothing,
           uintptr_t targets, uintptr_t losses, int threads) {
          CrossEntropyJob job;
          job.rows = rows, job.size = size, job.scores = at<void*>(scores), job.row_stride = row_stride;
          job.narrow = narrow, job.gradient = gradient, job.smoothing = smoothing;
          job.targets = at<const int64_t*>(targets), job.losses = at<float*>(losses);
          kernels().cross_entropy(job, threads);
        },
        nb::call_guard<nb::gil_scoped_release>(), "Losses, and their gradients in the scores' place; see vocabulary.h.");
}

}  // namespace unrolled
