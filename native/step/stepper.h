// A stack of layers that runs one step at a time.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/dispatch.h"
#include "step/job.h"
#include "step/watch.h"

namespace unrolled {

class Stepper {
 public:
  explicit Stepper(int weights) : weights_(weight_kind(weights)) {}
  ~Stepper();
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  // `tensors` are copied: by name of the cell's field, address and number of floats.
  void add_layer(int kind, int features, int hidden, int width, bool peephole_previous, float keep_h, float keep_c,
                 const std::unordered_map<std::string, std::pair<uintptr_t, size_t>>& tensors);

  // x (B, D); states and new states (B, L, size). `c` is null for cells that have none.
  void step(int batch, const float* x, const float* h, const float* c, float* new_h, float* new_c) const;

  int depth() const { return static_cast<int>(layers_.size()); }
  int features() const { return layers_.front().features; }
  int width() const { return layers_.front().width; }   // of h
  int hidden() const { return layers_.front().hidden; }  // of c
  bool has_memory() const { return traits_of(layers_.front().kind).memory; }
  // Whether a step takes so long that other threads of Python should run meanwhile.
  bool is_long(int batch) const;

  Watch watch;  // over the tensors that were copied

 private:
  const float* keep(const std::unordered_map<std::string, std::pair<uintptr_t, size_t>>& tensors, const char* name);
  double bytes(const StepLayer& layer) const;
  WeightKind weights_;
  std::vector<StepLayer> layers_;
  std::vector<std::unique_ptr<float[]>> vectors_;
};

// One batch of sequences that goes through a stepper, and its state between the steps. The stepper must outlive it.
class Stream {
 public:
  Stream(const Stepper& stepper, int batch);

  void step(const float* x);

  const Stepper& stepper() const { return stepper_; }
  int batch() const { return batch_; }
  float* h() { return states_[now_].data(); }
  float* c() { return h() + static_cast<size_t>(batch_) * stepper_.depth() * stepper_.width(); }

 private:
  const Stepper& stepper_;
  const int batch_;
  int now_ = 0;
  std::vector<float> states_[2];
};

}  // namespace unrolled
