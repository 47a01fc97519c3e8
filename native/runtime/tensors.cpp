#include "runtime/tensors.h"

#include <algorithm>
#include <atomic>
#include <new>

namespace unrolled {
namespace {

// The structures of DLPack, as its specification lays them out.
struct Device {
  int32_t type, id;
};
struct DataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct View {
  void* data;
  Device device;
  int32_t dimensions;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct Version {
  uint32_t major, minor;
};
struct Managed {
  Version version;
  void* context;
  void (*free)(Managed*);
  uint64_t flags;
  View view;
};
struct Table {
  Version version;
  Table* older;
  int (*allocate)(View*, Managed**, void*, void (*)(void*, const char*, const char*));
  int (*give)(void* object, Managed**);
  int (*take)(Managed*, void** object);
  int (*look)(void* object, View*);
  int (*stream)(int32_t device, int32_t id, void**);
};

constexpr int32_t kCpu = 1;
constexpr uint8_t kFloat = 2;
constexpr std::align_val_t kLine{64};

PyTypeObject* tensor_type = nullptr;
const Table* table = nullptr;

// The argument of a tensor's deleter: the tensor's description, allocated with it.
struct Shown {
  Managed managed;
  std::atomic<int>* users;
  void* memory;
  int64_t shape[3], strides[3];
};

void release(std::atomic<int>* users, void* memory) {
  if (users->fetch_sub(1, std::memory_order_acq_rel) == 1) ::operator delete(memory, kLine);
}

}  // namespace

bool connect_tensors(PyObject* type, PyObject* capsule) {
  auto* found = static_cast<const Table*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  while (found && found->version.major > 1) found = found->older;
  if (!found || found->version.major != 1 || !found->look || !found->take) {
    PyErr_Clear();
    return false;
  }
  Py_INCREF(type);
  tensor_type = reinterpret_cast<PyTypeObject*>(type);
  table = found;
  return true;
}

float* floats_of(PyObject* tensor, const int64_t* sizes, int dimensions, int64_t* first_size) {
  if (Py_TYPE(tensor) != tensor_type && !PyType_IsSubtype(Py_TYPE(tensor), tensor_type)) return nullptr;
  View view;
  if (table->look(tensor, &view)) {
    PyErr_Clear();
    return nullptr;
  }
  if (view.device.type != kCpu || view.dtype.code != kFloat || view.dtype.bits != 32 || view.dtype.lanes != 1 ||
      view.dimensions != dimensions)
    return nullptr;
  int64_t stride = 1;
  for (int d = dimensions - 1; d >= 0; --d) {
    if (sizes[d] != kAnySize && view.shape[d] != sizes[d]) return nullptr;
    if (view.strides && view.shape[d] != 1 && view.strides[d] != stride) return nullptr;
    stride *= view.shape[d];
  }
  if (first_size) *first_size = view.shape[0];
  static float nothing;  // an empty tensor may have no address
  return view.data ? reinterpret_cast<float*>(static_cast<char*>(view.data) + view.byte_offset) : &nothing;
}

struct Memory::Owner {
  std::atomic<int> users{1};
};

Memory::Memory(size_t floats) {
  constexpr size_t kHeader = 64;
  void* memory = ::operator new(kHeader + floats * sizeof(float), kLine);
  owner_ = new (memory) Owner;
  floats_ = reinterpret_cast<float*>(static_cast<char*>(memory) + kHeader);
}

Memory::~Memory() { release(&owner_->users, owner_); }

PyObject* Memory::tensor(float* start, const int64_t* sizes, const int64_t* strides, int dimensions) const {
  auto* shown = new Shown{};
  shown->users = &owner_->users;
  shown->memory = owner_;
  std::copy_n(sizes, dimensions, shown->shape);
  std::copy_n(strides, dimensions, shown->strides);
  shown->managed.version = {1, 0};
  shown->managed.context = shown;
  shown->managed.free = [](Managed* managed) {
    auto* mine = static_cast<Shown*>(managed->context);
    release(mine->users, mine->memory);
    delete mine;
  };
  shown->managed.view = {start, {kCpu, 0}, dimensions, {kFloat, 32, 1}, shown->shape, shown->strides, 0};
  owner_->users.fetch_add(1, std::memory_order_relaxed);
  void* object = nullptr;
  return table->take(&shown->managed, &object) == 0 ? static_cast<PyObject*>(object) : nullptr;
}

}  // namespace unrolled
