#include "bind/ctc.h"

#include "ctc/ctc.h"
#include "runtime/dispatch.h"

namespace nb = nanobind;

namespace unrolled {
namespace {

template <class Pointer>
Pointer at(uintptr_t address) {
  return reinterpret_cast<Pointer>(address);
}

}  // namespace

void bind_ctc(nb::module_& m) {
  m.def("ctc_loss",
        [](uintptr_t log_probs, int64_t batch, int64_t steps, int labels, int64_t batch_stride, int64_t step_stride,
           int blank, uintptr_t targets, uintptr_t offsets, uintptr_t target_lengths, uintptr_t input_lengths,
           uintptr_t losses, uintptr_t gradient, int threads) {
          CtcJob job;
          job.batch = batch, job.steps = steps, job.labels = labels, job.blank = blank;
          job.log_probs = at<const float*>(log_probs);
          job.batch_stride = batch_stride, job.step_stride = step_stride;
          job.targets = at<const int64_t*>(targets), job.offsets = at<const int64_t*>(offsets);
          job.target_lengths = at<const int64_t*>(target_lengths);
          job.input_lengths = at<const int64_t*>(input_lengths);
          job.losses = at<float*>(losses), job.gradient = at<float*>(gradient);
          kernels().ctc_loss(job, threads);
        },
        nb::call_guard<nb::gil_scoped_release>(), "Losses, and their gradients; see ctc.h.");
  m.def("ctc_align",
        [](uintptr_t log_probs, int64_t steps, int labels, int64_t step_stride, int blank, uintptr_t target,
           int64_t length, uintptr_t path) {
          const Frames frames{at<const float*>(log_probs), step_stride, steps, labels};
          return ctc_align(frames, blank, at<const int64_t*>(target), length, at<int32_t*>(path));
        },
        nb::call_guard<nb::gil_scoped_release>(), "The likeliest path of a target; see ctc.h.");
}

}  // namespace unrolled
