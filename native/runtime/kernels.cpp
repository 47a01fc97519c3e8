// The kernels of one instruction set. CMakeLists.txt compiles this file once for each, with its own flags and its own
// UNROLLED_NAMESPACE; dispatch.cpp picks one at run time.
#include "runtime/kernels.h"

#include "attention/decoder.h"
#include "cells/cells.h"
#include "recurrence/gru_reset_before.h"
#include "recurrence/lstm.h"
#include "step/kernels.h"

#define UNROLLED_STRING_(x) #x
#define UNROLLED_STRING(x) UNROLLED_STRING_(x)

namespace unrolled::UNROLLED_NAMESPACE {

void ctc_loss(const CtcJob& job, int threads);                // ctc/kernels.cpp
void ctc_align(AlignJob& job);                                // ctc/align.cpp
void top_scores(const TopJob& job, int threads);              // vocabulary/kernels.cpp
void cross_entropy(const CrossEntropyJob& job, int threads);
void narrow_scores(const NarrowScoresJob& job, int threads);
bool has_narrow();
void apart_product(const ApartProductJob& job, int threads);  // apart/kernels.cpp
void apart_attention(const ApartAttentionJob& job, int threads);
void change_line(const LinePixels& line);                     // lines/kernels.cpp

static void forward(const ScanJob& job, int threads) {
  with_cell(job.kind, [&]<class Cell>(Cell) { run<typename ScanOf<Cell>::Forward>(job, threads); });
}

static void backward(const ScanJob& job, int threads) {
  with_cell(job.kind, [&]<class Cell>(Cell) { run<typename ScanOf<Cell>::Backward>(job, threads); });
}

extern const Kernels kKernels;
const Kernels kKernels = {
    UNROLLED_STRING(UNROLLED_NAMESPACE),
    kLanes,
    forward,
    backward,
    run_attention<AttentionForward>,
    run_attention<AttentionBackward>,
    look_at_memories,
    {pack_matrix, free_matrix, step_layer, step_scratch},
    ctc_loss,
    ctc_align,
    top_scores,
    cross_entropy,
    narrow_scores,
    apart_product,
    apart_attention,
    change_line,
    has_narrow};

}  // namespace unrolled::UNROLLED_NAMESPACE
