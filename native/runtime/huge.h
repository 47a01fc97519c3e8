// Memory for large tables that are read at random: in huge pages where the system has them, so that a read of a far place
// is not first a search for its page.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

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
    void* memory = std::aligned_alloc(kPage, whole);
    if (!memory) throw std::bad_alloc();
#ifdef __linux__
    madvise(memory, whole, MADV_HUGEPAGE);  // where it is refused, the pages are small ones
#endif
    return static_cast<T*>(memory);
  }

  void deallocate(T* memory, size_t count) {
    if (count * sizeof(T) < kPage) return ::operator delete(memory);
    std::free(memory);
  }

  bool operator==(const HugePages&) const { return true; }
};

template <class T>
using HugeVector = std::vector<T, HugePages<T>>;

}  // namespace unrolled
