// Words and their numbers, from 0 up in the order in which they came.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/huge.h"

namespace unrolled {

class Words {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  Words() = default;
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;

  // The number of a word, a new one where it has none.
  uint32_t add(std::string_view word) {
    const uint64_t key = hash(word);
    size_t place = key & (slots_.size() - 1);
    for (; slots_[place].number != kNone; place = (place + 1) & (slots_.size() - 1))
      if (is(slots_[place], key, word)) return slots_[place].number;
    const uint32_t number = size();
    words_.push_back(keep(word));
    slots_[place] = {static_cast<uint32_t>(key >> 32), number};
    if (words_.size() * 2 > slots_.size()) grow();
    return number;
  }

  uint32_t find(std::string_view word) const {
    const uint64_t key = hash(word);
    for (size_t place = key & (slots_.size() - 1); slots_[place].number != kNone; place = (place + 1) & (slots_.size() - 1))
      if (is(slots_[place], key, word)) return slots_[place].number;
    return kNone;
  }

  std::string_view operator[](uint32_t number) const { return words_[number]; }
  uint32_t size() const { return static_cast<uint32_t>(words_.size()); }

 private:
  static constexpr size_t kBlock = 1 << 16;

  struct Slot {
    uint32_t tag = 0, number = kNone;  // the tag is half of the hash: few other words are ever looked at
  };

  static uint64_t hash(std::string_view word) {
    uint64_t mixed = word.size() * 0x9E3779B97F4A7C15u;
    const char* at = word.data();
    size_t left = word.size();
    for (; left >= 8; at += 8, left -= 8) {
      uint64_t part;
      std::memcpy(&part, at, 8);
      mixed = (mixed ^ part) * 0xD6E8FEB86659FD93u;
      mixed ^= mixed >> 32;
    }
    uint64_t part = 0;
    std::memcpy(&part, at, left);
    mixed = (mixed ^ part) * 0xD6E8FEB86659FD93u;
    mixed = (mixed ^ mixed >> 32) * 0x9E3779B97F4A7C15u;
    return mixed ^ mixed >> 29;
  }

  bool is(const Slot& slot, uint64_t key, std::string_view word) const {
    return slot.tag == key >> 32 && words_[slot.number] == word;
  }

  void grow() {
    slots_.assign(slots_.size() * 2, {});
    for (uint32_t number = 0; number < size(); ++number) {
      const uint64_t key = hash(words_[number]);
      size_t place = key & (slots_.size() - 1);
      while (slots_[place].number != kNone) place = (place + 1) & (slots_.size() - 1);
      slots_[place] = {static_cast<uint32_t>(key >> 32), number};
    }
  }

  // The letters, in blocks that never move.
  std::string_view keep(std::string_view word) {
    if (word.size() > room_) {
      room_ = std::max(kBlock, word.size());
      blocks_.push_back(std::make_unique<char[]>(room_));
      next_ = blocks_.back().get();
    }
    char* kept = next_;
    std::memcpy(kept, word.data(), word.size());
    next_ += word.size();
    room_ -= word.size();
    return {kept, word.size()};
  }

  HugeVector<std::string_view> words_;
  HugeVector<Slot> slots_ = HugeVector<Slot>(1024);
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* next_ = nullptr;
  size_t room_ = 0;
};

}  // namespace unrolled
