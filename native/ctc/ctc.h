// Connectionist temporal classification: the arguments of the loss, and the search for one alignment.
#pragma once

#include <cstdint>

namespace unrolled {

// The frames of one sequence: (T, V) log-probabilities, contiguous in V.
struct Frames {
  const float* data = nullptr;
  int64_t stride = 0;
  int64_t count = 0;
  int labels = 0;
  const float* at(int64_t t) const { return data + t * stride; }
};

// Losses −log p(target), and their gradients with respect to the log-probabilities.
struct CtcJob {
  int64_t batch = 0, steps = 0;
  int labels = 0, blank = 0;
  const float* log_probs = nullptr;  // (B, T, V) with any strides for batch and time
  int64_t batch_stride = 0, step_stride = 0;
  const int64_t* targets = nullptr;  // one after the other
  const int64_t* offsets = nullptr;  // (B,) where each begins
  const int64_t* target_lengths = nullptr;
  const int64_t* input_lengths = nullptr;
  float* losses = nullptr;    // (B,): infinite where no path exists, NaN where the frames are not numbers
  float* gradient = nullptr;  // (B, T, V) contiguous, or null; zero where the loss is not finite

  Frames frames(int64_t b) const { return {log_probs + b * batch_stride, step_stride, input_lengths[b], labels}; }
};

// Frames that a target needs: one for each label, and a blank between two that are the same.
int64_t ctc_frames_needed(const int64_t* target, int64_t length);

// The likeliest path of a target through the frames: `path` (T,) gets, for each frame, 2j + 1 where it shows label j and
// 2j where it shows the blank before it. `found` is the path's log-probability, −infinity if there is none.
struct AlignJob {
  Frames frames;
  int blank = 0;
  const int64_t* target = nullptr;
  int64_t length = 0;
  int32_t* path = nullptr;
  int64_t at_once = 1 << 23;  // frames times labels whose moves are kept; of more, parts are computed again
  double found = 0;
};

}  // namespace unrolled
