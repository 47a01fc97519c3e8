#include "runtime/platform.h"

#include <charconv>

#if defined(_WIN32)
#include <fcntl.h>
#include <io.h>
#include <share.h>
#include <sys/stat.h>
#include <windows.h>

#include <atomic>
#else
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#endif

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__linux__) && defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#include <xlocale.h>

#include <cerrno>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace unrolled {

#if defined(_WIN32)

// torch's OpenMP on Windows does not export the functions that `parallel` calls.
void* loaded_symbol(const char*) { return nullptr; }

void in_forked_child(void (*)()) {}

std::FILE* open_scratch_file(const std::string& folder) {
  static std::atomic<unsigned> count{0};
  const std::string name = folder + "\\unrolled-" + std::to_string(GetCurrentProcessId()) + "-" + std::to_string(count++);
  std::wstring wide(MultiByteToWideChar(CP_UTF8, 0, name.c_str(), -1, nullptr, 0), L'\0');
  MultiByteToWideChar(CP_UTF8, 0, name.c_str(), -1, wide.data(), static_cast<int>(wide.size()));
  int number = -1;
  const int how = _O_CREAT | _O_EXCL | _O_RDWR | _O_BINARY | _O_TEMPORARY | _O_SHORT_LIVED | _O_NOINHERIT;
  _wsopen_s(&number, wide.c_str(), how, _SH_DENYRW, _S_IREAD | _S_IWRITE);
  return number < 0 ? nullptr : _fdopen(number, "w+b");
}

#else

void* loaded_symbol(const char* name) { return dlsym(RTLD_DEFAULT, name); }

void in_forked_child(void (*function)()) { pthread_atfork(nullptr, nullptr, function); }

std::FILE* open_scratch_file(const std::string& folder) {
  std::string name = folder + "/unrolled-XXXXXX";
  const int number = mkstemp(name.data());
  if (number < 0) return nullptr;
  unlink(name.c_str());
  return fdopen(number, "w+b");
}

#endif

#if defined(__APPLE__)

// Its std::from_chars knew no floats for years.
bool parse_float(std::string_view text, float& number) {
  if (text.empty() || text.find_first_of("+xX \t\n\v\f\r") == 0 || text.find_first_of("xX") != text.npos) return false;
  const std::string terminated(text);
  char* end = nullptr;
  errno = 0;
  number = strtof_l(terminated.c_str(), &end, nullptr);  // null: the C locale
  return errno == 0 && end == terminated.c_str() + terminated.size();
}

#else

bool parse_float(std::string_view text, float& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

#endif

void prefer_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] size_t bytes) {
#if defined(__linux__)
  madvise(memory, bytes, MADV_HUGEPAGE);
#endif
}

namespace {

#if defined(__x86_64__)

// Registers that the system saves when it changes threads: without it, wider ones cannot be used.
unsigned saved_registers() {
  unsigned low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

Processor examine() {
  Processor found;
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return found;
  const auto bit = [](unsigned of, int place) { return (of >> place & 1u) != 0; };
  const bool fma = bit(c, 12), system_saves = bit(c, 27), avx = bit(c, 28), f16c = bit(c, 29);
  if (!system_saves || !avx) return found;
  constexpr unsigned kAvx = 0x06, kAvx512 = 0xe6;  // xmm and ymm; also masks and zmm
  const unsigned saved = saved_registers();
  if ((saved & kAvx) != kAvx || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
  const unsigned most = a;
  found.avx2 = fma && f16c && bit(b, 5);
  found.avx512 = found.avx2 && (saved & kAvx512) == kAvx512 && bit(b, 16) && bit(b, 17) && bit(b, 30) && bit(b, 31);
  found.avx512_vnni = found.avx512 && bit(c, 11);
  found.avx512_bf16 = found.avx512 && most >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && bit(a, 5);
  return found;
}

#elif defined(__aarch64__)

Processor examine() {
  Processor found;
#if defined(__linux__)
  found.dot_product = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#elif defined(__APPLE__)
  int value = 0;
  size_t size = sizeof value;
  found.dot_product = sysctlbyname("hw.optional.arm.FEAT_DotProd", &value, &size, nullptr, 0) == 0 && value != 0;
#endif
  return found;
}

#else

Processor examine() { return {}; }

#endif

}  // namespace

const Processor& processor() {
  static const Processor found = examine();
  return found;
}

}  // namespace unrolled
