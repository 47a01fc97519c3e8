// Words and their numbers, from 0 up in the order in which they came.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace unrolled {

class Words {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // The number of a word, a new one where it has none.
  uint32_t add(std::string_view word) {
    const uint32_t known = find(word);
    if (known != kNone) return known;
    const auto number = static_cast<uint32_t>(words_.size());
    numbers_.emplace(words_.emplace_back(word), number);
    return number;
  }

  uint32_t find(std::string_view word) const {
    const auto found = numbers_.find(word);
    return found == numbers_.end() ? kNone : found->second;
  }

  const std::string& operator[](uint32_t number) const { return words_[number]; }
  uint32_t size() const { return static_cast<uint32_t>(words_.size()); }

 private:
  std::deque<std::string> words_;  // a deque never moves them: the keys below look into it
  std::unordered_map<std::string_view, uint32_t> numbers_;
};

}  // namespace unrolled
