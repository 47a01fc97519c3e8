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
           int64_t length, uintptr_t path) {
          const Frames frames{reinterpret_cast<const float*>(log_probs), step_stride, steps, labels};
          return ctc_align(frames, blank, reinterpret_cast<const int64_t*>(target), length, reinterpret_cast<int32_t*>(path));
        },
        nb::call_guard<nb::gil_scoped_release>(), "The likeliest path of a target; see ctc.h.");
}

}  // namespace unrolled
