#include "bind/vocabulary.h"

#include "runtime/dispatch.h"
#include "vocabulary/vocabulary.h"

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
  m.def("narrow_scores",
        [](uintptr_t x, int rows, int depth, int64_t x_stride, uintptr_t weight, int size, uintptr_t bias,
           uintptr_t scores, int64_t scores_stride, int threads) {
          NarrowScoresJob job;
          job.rows = rows, job.size = size, job.depth = depth;
          job.x = at<const float*>(x), job.x_stride = x_stride;
          job.weight = at<const float*>(weight), job.bias = at<const float*>(bias);
          job.scores = at<float*>(scores), job.scores_stride = scores_stride;
          kernels().narrow_scores(job, threads);
        },
        nb::call_guard<nb::gil_scoped_release>(), "A linear layer in bfloat16; see vocabulary.h.");
  m.def("narrow", [] { return kernels().narrow(); }, "Whether this processor multiplies bfloat16.");
  m.def("cross_entropy",
        [](uintptr_t scores, int64_t rows, int size, int64_t row_stride, bool narrow, bool gradient, float smoothing,
           uintptr_t targets, uintptr_t losses, uintptr_t column_sums, int threads) {
          CrossEntropyJob job;
          job.rows = rows, job.size = size, job.scores = at<void*>(scores), job.row_stride = row_stride;
          job.narrow = narrow, job.gradient = gradient, job.smoothing = smoothing;
          job.targets = at<const int64_t*>(targets), job.losses = at<float*>(losses);
          job.column_sums = at<float*>(column_sums);
          kernels().cross_entropy(job, threads);
        },
        nb::call_guard<nb::gil_scoped_release>(), "Losses, and their gradients in the scores' place; see vocabulary.h.");
}

}  // namespace unrolled
