// A stack of layers that runs one step at a time.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "dispatch.h"
#include "step.h"

namespace unrolled {

class Stepper {
 public:
  explicit Stepper(int weights) : weights_(static_cast<WeightKind>(weights)) {}
  ~Stepper();
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  // `tensors` are copied: by name of the cell's field, address and number of floats.
  void add_layer(int kind, int features, int hidden, int width, bool peephole_previous, float keep_h, float keep_c,
                 const std::unordered_map<std::string, std::pair<uintptr_t, size_t>>& tensors);

  // x (B, D); states and new states (B, L, size). `c` is null for cells that have none.
  void step(int batch, const float* x, const float* h, const float* c, float* new_h, float* new_c, int threads) const;

 private:
  const float* keep(const std::unordered_map<std::string, std::pair<uintptr_t, size_t>>& tensors, const char* name);
  WeightKind weights_;
  std::vector<StepLayer> layers_;
  std::vector<std::unique_ptr<float[]>> vectors_;
};

}  // namespace unrolled
