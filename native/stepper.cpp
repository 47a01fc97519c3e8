#include "stepper.h"

#include <algorithm>

#include "parallel.h"

namespace unrolled {

Stepper::~Stepper() {
  for (StepLayer& layer : layers_)
    for (PackedMatrix* matrix : {&layer.w, &layer.u, &layer.u_n, &layer.r}) kernels().step.free(*matrix);
}

const float* Stepper::keep(const std::unordered_map<std::string, std::pair<uintptr_t, size_t>>& tensors, const char* name) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) return nullptr;
  const auto* from = reinterpret_cast<const float*>(found->second.first);
  vectors_.push_back(std::make_unique<float[]>(found->second.second));
  std::copy_n(from, found->second.second, vectors_.back().get());
  return vectors_.back().get();
}

void Stepper::add_layer(int kind, int features, int hidden, int width, bool peephole_previous, float keep_h, float keep_c,
                        const std::unordered_map<std::string, std::pair<uintptr_t, size_t>>& tensors) {
  StepLayer layer{kind, features, hidden, width, peephole_previous, keep_h, keep_c};
  const auto matrix = [&](const char* name) { return reinterpret_cast<const float*>(tensors.at(name).first); };
  const auto& pack = kernels().step.pack;
  const int rows = static_cast<int>(tensors.at("weight_hh").second) / width;
  layer.w = pack(matrix("weight_ih"), rows, features, weights_);
  if (static_cast<CellKind>(kind) == CellKind::gru_reset_before) {
    layer.u = pack(matrix("weight_hh"), 2 * hidden, width, weights_);
    layer.u_n = pack(matrix("weight_hh") + 2 * static_cast<size_t>(hidden) * width, hidden, width, weights_);
  } else {
    layer.u = pack(matrix("weight_hh"), rows, width, weights_);
  }
  if (tensors.count("weight_hr")) layer.r = pack(matrix("weight_hr"), width, hidden, weights_);
  layer.bias_ih = keep(tensors, "bias_ih");
  layer.bias_hh = keep(tensors, "bias_hh");
  layer.norm_ih = keep(tensors, "norm_ih");
  layer.norm_hh = keep(tensors, "norm_hh");
  layer.peephole = keep(tensors, "weight_peephole");
  layer.norm_c = keep(tensors, "norm_c");
  layer.norm_c_bias = keep(tensors, "norm_c_bias");
  layers_.push_back(layer);
}

void Stepper::step(int batch, const float* x, const float* h, const float* c, float* new_h, float* new_c,
                   int threads) const {
  constexpr double kWorthAThread = 700e3;  // bytes of weights: reading fewer is over before another thread wakes
  const int depth = static_cast<int>(layers_.size());
  unsigned long room = 0;
  for (const StepLayer& layer : layers_) room = std::max(room, kernels().step.scratch(layer, batch));
  float* scratch = allocate_scratch(room);
  StepRows rows;
  rows.batch = batch;
  rows.x = x;
  rows.x_stride = layers_.front().features;
  for (int l = 0; l < depth; ++l) {
    const StepLayer& layer = layers_[l];
    rows.h = h + static_cast<int64_t>(l) * layer.width;
    rows.new_h = new_h + static_cast<int64_t>(l) * layer.width;
    rows.h_stride = static_cast<int64_t>(depth) * layer.width;
    if (c) {
      rows.c = c + static_cast<int64_t>(l) * layer.hidden;
      rows.new_c = new_c + static_cast<int64_t>(l) * layer.hidden;
      rows.c_stride = static_cast<int64_t>(depth) * layer.hidden;
    }
    const double values = static_cast<double>(layer.w.rows) * (layer.features + layer.width);
    const double bytes = values * (weights_ == WeightKind::fp32 ? 4 : weights_ == WeightKind::fp16 ? 2 : 1);
    kernels().step.step(layer, rows, scratch, bytes > kWorthAThread ? threads : 1);
    rows.x = rows.new_h;
    rows.x_stride = rows.h_stride;
  }
  free_scratch(scratch);
}

}  // namespace unrolled
