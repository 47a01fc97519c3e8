#include "step/stepper.h"

#include <algorithm>
#include <stdexcept>

#include "runtime/parallel.h"

namespace unrolled {

WeightKind weight_kind(int number) {
  if (number < 0 || number > static_cast<int>(WeightKind::int8))
    throw std::invalid_argument("Unknown weight kind " + std::to_string(number) + ". Kinds are 0 to 3.");
  return static_cast<WeightKind>(number);
}

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
  const CellTraits& cell = traits_of(cell_kind(kind));
  StepLayer layer{cell.kind, features, hidden, width, peephole_previous, keep_h, keep_c};
  const auto matrix = [&](const char* name) { return reinterpret_cast<const float*>(tensors.at(name).first); };
  const int rows = static_cast<int>(tensors.at("weight_hh").second) / width;
  // layer norm reads all units before any gate is known
  const bool together = gates_together(cell) && !tensors.count("norm_hh");
  const auto pack = [&](const float* from, int some_rows, int depth, int gate_rows = 0) {
    return kernels().step.pack(from, some_rows, depth, weights_, gate_rows);
  };
  layer.w = pack(matrix("weight_ih"), rows, features, together ? hidden : 0);
  if (cell.two_products) {
    layer.u = pack(matrix("weight_hh"), 2 * hidden, width);
    layer.u_n = pack(matrix("weight_hh") + 2 * static_cast<size_t>(hidden) * width, hidden, width);
  } else {
    layer.u = pack(matrix("weight_hh"), rows, width, together ? hidden : 0);
  }
  if (tensors.count("weight_hr")) layer.r = pack(matrix("weight_hr"), width, hidden);
  layer.bias_ih = keep(tensors, "bias_ih");
  layer.bias_hh = keep(tensors, "bias_hh");
  layer.norm_ih = keep(tensors, "norm_ih");
  layer.norm_hh = keep(tensors, "norm_hh");
  layer.peephole = keep(tensors, "weight_peephole");
  layer.norm_c = keep(tensors, "norm_c");
  layer.norm_c_bias = keep(tensors, "norm_c_bias");
  layers_.push_back(layer);
}

double Stepper::bytes(const StepLayer& layer) const {
  const double size = weights_ == WeightKind::fp32 ? 4 : weights_ == WeightKind::int8 ? 1 : 2;
  return size * layer.w.rows * (layer.features + layer.width);
}

bool Stepper::is_long(int batch) const {
  constexpr double kLong = 4e6;  // bytes of weights: about 20 microseconds
  double total = 0;
  for (const StepLayer& layer : layers_) total += bytes(layer);
  return total * batch > kLong;
}

void Stepper::step(int batch, const float* x, const float* h, const float* c, float* new_h, float* new_c) const {
  constexpr double kWorthAThread = 100e3;  // bytes of weights: reading fewer is over before another thread has begun
  const int threads = thread_count();
  const bool long_enough = is_long(batch);
  size_t room = 0;
  for (const StepLayer& layer : layers_) room = std::max(room, kernels().step.scratch(layer, batch));
  float* scratch = allocate_scratch(room);
  StepRows rows;
  rows.batch = batch;
  rows.x = x;
  rows.x_stride = features();
  for (int l = 0; l < depth(); ++l) {
    const StepLayer& layer = layers_[l];
    rows.h = h + static_cast<int64_t>(l) * layer.width;
    rows.new_h = new_h + static_cast<int64_t>(l) * layer.width;
    rows.h_stride = static_cast<int64_t>(depth()) * layer.width;
    if (c) {
      rows.c = c + static_cast<int64_t>(l) * layer.hidden;
      rows.new_c = new_c + static_cast<int64_t>(l) * layer.hidden;
      rows.c_stride = static_cast<int64_t>(depth()) * layer.hidden;
    }
    const int worth = static_cast<int>(std::min(bytes(layer) / kWorthAThread, 1024.0));
    kernels().step.step(layer, rows, scratch, {std::clamp(worth, 1, threads), long_enough});
    rows.x = rows.new_h;
    rows.x_stride = rows.h_stride;
  }
  free_scratch(scratch);
}

Stream::Stream(const Stepper& stepper, int batch) : stepper_(stepper), batch_(batch) {
  const size_t size = static_cast<size_t>(batch) * stepper.depth() * (stepper.width() + stepper.hidden());
  for (auto& state : states_) state.resize(size);
}

void Stream::step(const float* x) {
  const float* old_h = h();
  const float* old_c = stepper_.has_memory() ? c() : nullptr;
  now_ = 1 - now_;
  stepper_.step(batch_, x, old_h, old_c, h(), old_c ? c() : nullptr);
}

}  // namespace unrolled
