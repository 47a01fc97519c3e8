// The kernels of one instruction set.
#pragma once

#include "apart/apart.h"
#include "attention/job.h"
#include "ctc/ctc.h"
#include "lines/pixels.h"
#include "recurrence/job.h"
#include "step/job.h"
#include "vocabulary/vocabulary.h"

namespace unrolled {

struct Kernels {
  const char* name;
  int lanes;
  void (*forward)(const ScanJob&, int threads);
  void (*backward)(const ScanJob&, int threads);
  void (*attention_forward)(const AttentionJob&, int threads);
  void (*attention_backward)(const AttentionJob&, int threads);
  void (*attention_look)(const AttentionJob&, int threads);
  StepKernels step;
  void (*ctc_loss)(const CtcJob&, int threads);
  void (*ctc_align)(AlignJob&);
  void (*top_scores)(const TopJob&, int threads);
  void (*cross_entropy)(const CrossEntropyJob&, int threads);
  void (*narrow_scores)(const NarrowScoresJob&, int threads);
  void (*apart_product)(const ApartProductJob&, int threads);
  void (*apart_attention)(const ApartAttentionJob&, int threads);
  void (*change_line)(const LinePixels&);
  bool (*narrow)();  // whether this processor multiplies bfloat16
};

}  // namespace unrolled
