// The lines of a text that comes in pieces, cut anywhere.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace unrolled {

class Lines {
 public:
  // `read(line)` for every line that has ended, without its end.
  template <class Read>
  void feed(std::string_view bytes, const Read& read) {
    while (!bytes.empty()) {
      const size_t end = bytes.find('\n');
      rest_.append(bytes.substr(0, rest_.empty() && end != std::string_view::npos ? 0 : end));
      if (end == std::string_view::npos) return;
      ++number_;
      read(rest_.empty() ? bytes.substr(0, end) : std::string_view(rest_));
      rest_.clear();
      bytes.remove_prefix(end + 1);
    }
  }
  // And for the last one, if nothing ended it.
  template <class Read>
  void finish(const Read& read) {
    if (rest_.empty()) return;
    ++number_;
    read(std::string_view(rest_));
    rest_.clear();
  }
  // Of the line that was read last, from 1.
  size_t number() const { return number_; }

 private:
  std::string rest_;  // of a line whose end has not come
  size_t number_ = 0;
};

}  // namespace unrolled
