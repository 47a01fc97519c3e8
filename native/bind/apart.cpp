#include "bind/apart.h"

#include "apart/apart.h"
#include "bind/fields.h"

namespace nb = nanobind;

namespace unrolled {

void bind_apart(nb::module_& m) {
  {
    using Self = ApartProductJob;
    nb::class_<ApartProductJob>(m, "ApartProductJob")
        .def(nb::init<>())
        UNROLLED_VALUE(count) UNROLLED_VALUE(rows) UNROLLED_VALUE(columns) UNROLLED_VALUE(depth)
        UNROLLED_ADDRESS(x) UNROLLED_VALUE(x_next) UNROLLED_VALUE(x_row) UNROLLED_ADDRESS(w) UNROLLED_VALUE(w_next)
        UNROLLED_VALUE(upright) UNROLLED_ADDRESS(bias) UNROLLED_ADDRESS(out) UNROLLED_RUN("run", apart_product);
  }
  {
    using Self = ApartAttentionJob;
    nb::class_<ApartAttentionJob>(m, "ApartAttentionJob")
        .def(nb::init<>())
        UNROLLED_VALUE(batch) UNROLLED_VALUE(heads) UNROLLED_VALUE(queries) UNROLLED_VALUE(positions)
        UNROLLED_VALUE(size) UNROLLED_ADDRESS(q) UNROLLED_VALUE(q_batch) UNROLLED_VALUE(q_head) UNROLLED_VALUE(q_row)
        UNROLLED_ADDRESS(k) UNROLLED_VALUE(k_batch) UNROLLED_VALUE(k_head) UNROLLED_VALUE(k_row) UNROLLED_ADDRESS(v)
        UNROLLED_VALUE(v_batch) UNROLLED_VALUE(v_head) UNROLLED_VALUE(v_row) UNROLLED_ADDRESS(mask)
        UNROLLED_VALUE(mask_batch) UNROLLED_VALUE(mask_row) UNROLLED_VALUE(causal) UNROLLED_VALUE(scale)
        UNROLLED_ADDRESS(out) UNROLLED_ADDRESS(weights) UNROLLED_RUN("run", apart_attention);
  }
}

}  // namespace unrolled
