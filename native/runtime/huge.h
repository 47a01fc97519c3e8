// Memory for large tables that are read at random: in huge pages where the system has them, so that a read of a far place
// is not first a search for its page.
#pragma once

#include <cstdint>
#include <new>
#include <vector>

#include "runtime/platform.h"

namespace unrolled {

template <class T>
struct HugePages {
  using value_type = T;
  static constexpr size_t kPage = size_t{1} << 21;

  HugePages() = default;
  template <class Other>
  HugePages(const HugePages<Other>&) {}

  T* allocate(size_t count) {
    if (count > PTRDIFF_MAX / 2 / sizeof(T)) throw std::bad_array_new_length();
    const size_t bytes = count * sizeof(T);
    if (bytes < kPage) return static_cast<T*>(::operator new(bytes));
    const size_t whole = (bytes + kPage - 1) / kPage * kPage;
    void* memory = ::operator new(whole, std::align_val_t{kPage});
    prefer_huge_pages(memory, whole);
    return static_cast<T*>(memory);
  }

  void deallocate(T* memory, size_t count) {
    if (count * sizeof(T) < kPage) return ::operator delete(memory);
    ::operator delete(memory, std::align_val_t{kPage});
  }

  bool operator==(const HugePages&) const { return true; }
};

template <class T>
using HugeVector = std::vector<T, HugePages<T>>;

}  // namespace unrolled
