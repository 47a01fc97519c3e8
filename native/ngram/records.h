// Records of a few 32-bit numbers, more of them than memory holds: they go to files as they must, and come back sorted, or
// in the order in which they went.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace unrolled {

// A file without a name, in a folder: it is gone when it is closed, however the program ends.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& folder);
  void write(const uint32_t* numbers, size_t count);
  size_t read(uint32_t* numbers, size_t count);  // how many there were
  void rewind();

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Closer> file_;
};

// First in, first out.
class Spool {
 public:
  Spool(int width, size_t bytes, std::string folder);
  void add(const uint32_t* record);
  // The next record, null after the last; valid until the next call. Nothing is added after the first call.
  const uint32_t* next();
  size_t size() const { return size_; }

 private:
  const int width_;
  const size_t most_;  // numbers in memory
  const std::string folder_;
  std::vector<uint32_t> memory_;
  std::unique_ptr<ScratchFile> file_;
  size_t size_ = 0, place_ = 0, filled_ = 0;
  bool reading_ = false;
};

// In the order of the first `keys` numbers of each. With `sum`, records that have the same keys become one, their last
// numbers added up.
class Sorter {
 public:
  Sorter(int width, int keys, bool sum, size_t bytes, std::string folder, int threads);
  ~Sorter();
  void add(const uint32_t* record);
  // As Spool's.
  const uint32_t* next();

 private:
  struct Run;

  bool less(const uint32_t* a, const uint32_t* b) const;
  bool same(const uint32_t* a, const uint32_t* b) const;
  void sort_memory();
  void spill();
  void merge_runs();
  void begin_merge();
  const uint32_t* smallest();
  void advance();

  const int width_, keys_, threads_;
  const bool sum_;
  const size_t most_;
  const std::string folder_;
  std::vector<uint32_t> memory_;
  std::vector<std::unique_ptr<Run>> runs_;
  std::vector<Run*> heap_;
  std::vector<uint32_t> record_;
  bool reading_ = false;
};

}  // namespace unrolled
