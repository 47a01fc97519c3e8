// One sequence of a batch: its frames and its target, in their order or reversed.
#pragma once

#include <device.cuh>

#include <arguments.h>

enum class Target { HAS_PATHS, TOO_LONG, WRONG };

struct Sequence {
    const Arguments& given;
    const int row;
    const bool reversed;
    const int frames;
    const int length;  // of the target
    const int64_t offset;

    DEVICE Sequence(const Arguments& given, int row, bool reversed)
        : given(given),
          row(row),
          reversed(reversed),
          frames(bounded(given.input_lengths[row], given.steps)),
          length(bounded(given.target_lengths[row], given.target_count)),
          offset(given.offsets != nullptr ? given.offsets[row] : row * given.target_stride) {}

    // Lengths are on the GPU, where nobody has checked them: −1 stands for one that is out of range.
    static DEVICE int bounded(int64_t length, int64_t most) {
        return length < 0 || length > most ? -1 : static_cast<int>(length);
    }

    DEVICE Target kind() const {
        if (frames < 0 || length < 0) return Target::WRONG;
        if (given.offsets != nullptr && (offset < 0 || offset + length > given.target_count)) return Target::WRONG;
        if (length > frames) return Target::TOO_LONG;
        return length < given.pairs ? Target::HAS_PATHS : Target::WRONG;
    }

    // Label j of the target, as it was given.
    DEVICE int64_t given_label(int j) const { return given.targets[offset + (reversed ? length - 1 - j : j)]; }
    DEVICE bool allowed(int64_t label) const { return label >= 0 && label < given.labels && label != given.blank; }

    DEVICE int time_of(int frame) const { return reversed ? frames - 1 - frame : frame; }
    DEVICE const float* frame_at(int frame) const {
        return given.log_probs + row * given.row_stride + time_of(frame) * given.step_stride;
    }
};
