#include "bind/vocabulary.h"

#include "bind/fields.h"
#include "vocabulary/vocabulary.h"

namespace nb = nanobind;

namespace unrolled {

void bind_vocabulary(nb::module_& m) {
  {
    using Self = TopJob;
    nb::class_<TopJob>(m, "TopJob")
        .def(nb::init<>())
        UNROLLED_VALUE(rows) UNROLLED_VALUE(size) UNROLLED_VALUE(best) UNROLLED_VALUE(row_stride)
        UNROLLED_VALUE(blocked_stride) UNROLLED_ADDRESS(scores) UNROLLED_ADDRESS(blocked) UNROLLED_ADDRESS(values)
        UNROLLED_ADDRESS(tokens) UNROLLED_ADDRESS(totals) UNROLLED_RUN("run", top_scores);
  }
  {
    using Self = NarrowScoresJob;
    nb::class_<NarrowScoresJob>(m, "NarrowScoresJob")
        .def(nb::init<>())
        UNROLLED_VALUE(rows) UNROLLED_VALUE(size) UNROLLED_VALUE(depth) UNROLLED_VALUE(x_stride)
        UNROLLED_VALUE(scores_stride) UNROLLED_ADDRESS(x) UNROLLED_ADDRESS(weight) UNROLLED_ADDRESS(bias)
        UNROLLED_ADDRESS(scores) UNROLLED_RUN("run", narrow_scores);
  }
  {
    using Self = CrossEntropyJob;
    nb::class_<CrossEntropyJob>(m, "CrossEntropyJob")
        .def(nb::init<>())
        UNROLLED_VALUE(rows) UNROLLED_VALUE(size) UNROLLED_VALUE(row_stride) UNROLLED_VALUE(narrow)
        UNROLLED_VALUE(gradient) UNROLLED_VALUE(smoothing) UNROLLED_ADDRESS(scores) UNROLLED_ADDRESS(targets)
        UNROLLED_ADDRESS(losses) UNROLLED_ADDRESS(column_sums) UNROLLED_RUN("run", cross_entropy);
  }
  m.def("narrow", [] { return kernels().narrow(); }, "True if this processor multiplies bfloat16.");
}

}  // namespace unrolled
