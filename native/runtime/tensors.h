// torch's tensors without torch's headers: through the table of functions that DLPack 1.3 has a library put on its
// tensor type (`torch.Tensor.__dlpack_c_exchange_api__`). Looking at a tensor and making one cost a fraction of the
// Python calls for it.
#pragma once

#include <Python.h>

#include <cstdint>

namespace unrolled {

// Sets torch's tensor type and its table. False if the table has an unknown version.
bool connect_tensors(PyObject* tensor_type, PyObject* table);

// The floats of a contiguous float32 tensor on the CPU with these sizes; null for anything else.
constexpr int kAnySize = -1;
float* floats_of(PyObject* tensor, const int64_t* sizes, int dimensions, int64_t* first_size = nullptr);

// Memory shared by several tensors; freed when the last of them, and the Memory itself, is gone.
class Memory {
 public:
  explicit Memory(size_t floats);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  float* floats() const { return floats_; }

  // A new tensor of up to three dimensions; null, with Python's error set, if it cannot be made.
  PyObject* tensor(float* start, const int64_t* sizes, const int64_t* strides, int dimensions) const;

 private:
  struct Owner;
  Owner* owner_;
  float* floats_;
};

}  // namespace unrolled
