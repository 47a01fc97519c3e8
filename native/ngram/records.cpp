#include "ngram/records.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "runtime/platform.h"

namespace unrolled {
namespace {

constexpr size_t kBlock = 1 << 14;  // numbers read from a file at once
constexpr size_t kMostRuns = 64;    // files that are open at once

[[noreturn]] void fail(const char* what) {
  throw std::runtime_error("scratch\nA scratch file could not be " + std::string(what) + ": " + std::strerror(errno) + ".\n" +
                           "Choose another folder for scratch files, or more memory.");
}

constexpr ptrdiff_t kWorthAThread = 1 << 15;  // records

// In place: what is smaller goes to one thread, the rest to others.
template <class Place, class Less>
void sort_in_threads(Place first, Place last, const Less& less, int threads) {
  if (threads < 2 || last - first < kWorthAThread) return std::sort(first, last, less);
  const int half = threads / 2;
  const Place middle = first + (last - first) / threads * half;
  std::nth_element(first, middle, last, less);
  std::thread other([=, &less] { sort_in_threads(middle, last, less, threads - half); });
  sort_in_threads(first, middle, less, half);
  other.join();
}

template <int Width>
void sort_records(uint32_t* data, size_t count, int keys, int threads) {
  using Record = std::array<uint32_t, Width>;
  auto* records = reinterpret_cast<Record*>(data);
  const auto less = [keys](const Record& a, const Record& b) {
    return std::lexicographical_compare(a.begin(), a.begin() + keys, b.begin(), b.begin() + keys);
  };
  sort_in_threads(records, records + count, less, threads);
}

// Records too wide for a sort of their own: pointers to them are sorted.
void sort_wide(std::vector<uint32_t>& data, int width, int keys, int threads) {
  std::vector<const uint32_t*> order(data.size() / width);
  for (size_t i = 0; i < order.size(); ++i) order[i] = data.data() + i * width;
  const auto less = [keys](const uint32_t* a, const uint32_t* b) { return std::lexicographical_compare(a, a + keys, b, b + keys); };
  sort_in_threads(order.begin(), order.end(), less, threads);
  std::vector<uint32_t> sorted;
  sorted.reserve(data.capacity());
  for (const uint32_t* record : order) sorted.insert(sorted.end(), record, record + width);
  data.swap(sorted);
}

}  // namespace

ScratchFile::ScratchFile(const std::string& folder) {
  file_.reset(open_scratch_file(folder));
  if (!file_) fail("made");
}

void ScratchFile::write(const uint32_t* numbers, size_t count) {
  if (std::fwrite(numbers, sizeof *numbers, count, file_.get()) != count) fail("written");
}

size_t ScratchFile::read(uint32_t* numbers, size_t count) {
  const size_t got = std::fread(numbers, sizeof *numbers, count, file_.get());
  if (std::ferror(file_.get())) fail("read");
  return got;
}

void ScratchFile::rewind() {
  if (std::fflush(file_.get()) != 0 || std::fseek(file_.get(), 0, SEEK_SET) != 0) fail("written");
}

Spool::Spool(int width, size_t bytes, std::string folder)
    : width_(width), most_(std::max<size_t>(bytes / 4 / width, 1) * width), folder_(std::move(folder)) {}

void Spool::add(const uint32_t* record) {
  if (memory_.size() + width_ > most_) {
    if (!file_) file_ = std::make_unique<ScratchFile>(folder_);
    file_->write(memory_.data(), memory_.size());
    memory_.clear();
  }
  memory_.insert(memory_.end(), record, record + width_);
  ++size_;
}

const uint32_t* Spool::next() {
  if (!reading_) {
    reading_ = true;
    filled_ = memory_.size();
    if (file_) {
      file_->write(memory_.data(), memory_.size());
      file_->rewind();
      memory_.assign(std::max<size_t>(kBlock / width_, 1) * width_, 0);
      place_ = filled_ = memory_.size();
    }
  }
  if (place_ == filled_ && file_) {
    filled_ = file_->read(memory_.data(), memory_.size());
    place_ = 0;
  }
  if (place_ == filled_) return nullptr;
  place_ += width_;
  return memory_.data() + place_ - width_;
}

struct Sorter::Run {
  std::unique_ptr<ScratchFile> file;  // null for what is still in memory
  std::vector<uint32_t> block;
  size_t place = 0, filled = 0;

  const uint32_t* record() const { return block.data() + place; }

  // To the first record; false where there is none.
  bool start(int width) {
    if (file) {
      file->rewind();
      block.resize(std::max<size_t>(kBlock / width, 1) * width);
      filled = file->read(block.data(), block.size());
    }
    place = 0;
    return filled > 0;
  }

  bool advance(int width) {
    place += width;
    if (place < filled) return true;
    if (!file) return false;
    filled = file->read(block.data(), block.size());
    place = 0;
    return filled > 0;
  }
};

Sorter::Sorter(int width, int keys, bool sum, size_t bytes, std::string folder, int threads)
    : width_(width), keys_(keys), threads_(threads), sum_(sum), most_(std::max<size_t>(bytes / 4 / width, 2) * width), folder_(std::move(folder)) {
  memory_.reserve(most_);
}

Sorter::~Sorter() = default;

bool Sorter::less(const uint32_t* a, const uint32_t* b) const {
  return std::lexicographical_compare(a, a + keys_, b, b + keys_);
}

bool Sorter::same(const uint32_t* a, const uint32_t* b) const { return std::equal(a, a + keys_, b); }

void Sorter::add(const uint32_t* record) {
  if (memory_.size() + width_ > most_) {
    sort_memory();
    if (memory_.size() * 2 > most_) spill();  // summing up may have made enough room
  }
  memory_.insert(memory_.end(), record, record + width_);
}

void Sorter::sort_memory() {
  const size_t count = memory_.size() / width_;
  switch (width_) {
    case 2: sort_records<2>(memory_.data(), count, keys_, threads_); break;
    case 3: sort_records<3>(memory_.data(), count, keys_, threads_); break;
    case 4: sort_records<4>(memory_.data(), count, keys_, threads_); break;
    case 5: sort_records<5>(memory_.data(), count, keys_, threads_); break;
    case 6: sort_records<6>(memory_.data(), count, keys_, threads_); break;
    case 7: sort_records<7>(memory_.data(), count, keys_, threads_); break;
    case 8: sort_records<8>(memory_.data(), count, keys_, threads_); break;
    default: sort_wide(memory_, width_, keys_, threads_);
  }
  if (!sum_ || count == 0) return;
  uint32_t* last = memory_.data();
  for (size_t i = 1; i < count; ++i) {
    const uint32_t* record = memory_.data() + i * width_;
    if (same(last, record)) {
      last[width_ - 1] += record[width_ - 1];
    } else {
      last += width_;
      std::copy(record, record + width_, last);
    }
  }
  memory_.resize(last + width_ - memory_.data());
}

void Sorter::spill() {
  if (runs_.size() == kMostRuns) merge_runs();
  auto run = std::make_unique<Run>();
  run->file = std::make_unique<ScratchFile>(folder_);
  run->file->write(memory_.data(), memory_.size());
  runs_.push_back(std::move(run));
  memory_.clear();
}

void Sorter::merge_runs() {
  auto merged = std::make_unique<Run>();
  merged->file = std::make_unique<ScratchFile>(folder_);
  begin_merge();
  while (const uint32_t* record = smallest()) {
    merged->file->write(record, width_);
    advance();
  }
  runs_.clear();
  runs_.push_back(std::move(merged));
}

void Sorter::begin_merge() {
  heap_.clear();
  for (auto& run : runs_)
    if (run->start(width_)) heap_.push_back(run.get());
  const auto later = [this](const Run* a, const Run* b) { return less(b->record(), a->record()); };
  std::make_heap(heap_.begin(), heap_.end(), later);
}

const uint32_t* Sorter::smallest() { return heap_.empty() ? nullptr : heap_.front()->record(); }

void Sorter::advance() {
  const auto later = [this](const Run* a, const Run* b) { return less(b->record(), a->record()); };
  std::pop_heap(heap_.begin(), heap_.end(), later);
  if (heap_.back()->advance(width_)) {
    std::push_heap(heap_.begin(), heap_.end(), later);
  } else {
    heap_.pop_back();
  }
}

const uint32_t* Sorter::next() {
  if (!reading_) {
    reading_ = true;
    sort_memory();
    auto rest = std::make_unique<Run>();
    rest->block.swap(memory_);
    rest->filled = rest->block.size();
    if (rest->filled > 0) runs_.push_back(std::move(rest));
    begin_merge();
    record_.resize(width_);
  }
  const uint32_t* record = smallest();
  if (!record) return nullptr;
  std::copy(record, record + width_, record_.begin());
  advance();
  while (sum_ && (record = smallest()) && same(record_.data(), record)) {
    record_[width_ - 1] += record[width_ - 1];
    advance();
  }
  return record_.data();
}

}  // namespace unrolled
