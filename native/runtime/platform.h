// What each system does in its own way: loaded libraries, forks, scratch files, numbers, large pages,
// features of the processor.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace unrolled {

// The address of a symbol that a loaded library exports; null if there is none.
void* loaded_symbol(const char* name);

// Calls a function first in every forked child. Windows has no forks.
void in_forked_child(void (*function)());

// A file in a folder (UTF-8) that nobody else sees and that is gone when it is closed. Null, with errno, if it fails.
std::FILE* open_scratch_file(const std::string& folder);

// A whole text as a number, with a point in every locale. False for anything else.
bool parse_float(std::string_view text, float& number);

// Asks for huge pages; where that is refused, the pages are small ones.
void prefer_huge_pages(void* memory, size_t bytes);

// The instructions beyond its baseline that this processor and its system run.
struct Processor {
  bool avx2 = false;         // with FMA and F16C
  bool avx512 = false;       // F, BW, VL and DQ
  bool avx512_vnni = false;  // products of 8-bit and 16-bit whole numbers
  bool avx512_bf16 = false;  // products of bfloat16
  bool dot_product = false;  // Arm's products of 8-bit whole numbers
};
const Processor& processor();

}  // namespace unrolled
