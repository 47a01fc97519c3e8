#include "bind/ctc.h"

#include "bind/fields.h"
#include "ctc/ctc.h"

namespace nb = nanobind;

namespace unrolled {

void bind_ctc(nb::module_& m) {
  using Self = CtcJob;
  nb::class_<CtcJob>(m, "CtcJob")
      .def(nb::init<>())
      UNROLLED_VALUE(batch) UNROLLED_VALUE(steps) UNROLLED_VALUE(labels) UNROLLED_VALUE(blank)
      UNROLLED_VALUE(batch_stride) UNROLLED_VALUE(step_stride) UNROLLED_ADDRESS(log_probs) UNROLLED_ADDRESS(targets)
      UNROLLED_ADDRESS(offsets) UNROLLED_ADDRESS(target_lengths) UNROLLED_ADDRESS(input_lengths)
      UNROLLED_ADDRESS(losses) UNROLLED_ADDRESS(gradient) UNROLLED_RUN("run", ctc_loss);
  m.def("ctc_align",
        [](uintptr_t log_probs, int64_t steps, int labels, int64_t step_stride, int blank, uintptr_t target,
           int64_t length, uintptr_t path, int64_t at_once) {
          AlignJob job{{reinterpret_cast<const float*>(log_probs), step_stride, steps, labels},
                       blank,
                       reinterpret_cast<const int64_t*>(target),
                       length,
                       reinterpret_cast<int32_t*>(path),
                       at_once};
          kernels().ctc_align(job);
          return job.found;
        },
        nb::arg("log_probs"), nb::arg("steps"), nb::arg("labels"), nb::arg("step_stride"), nb::arg("blank"),
        nb::arg("target"), nb::arg("length"), nb::arg("path"), nb::arg("at_once") = AlignJob{}.at_once,
        nb::call_guard<nb::gil_scoped_release>(), "The likeliest path of a target; see ctc.h.");
}

}  // namespace unrolled
