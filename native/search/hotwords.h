// Phrases that a search prefers: an automaton over labels, built in unrolled/search/ctc/hotwords.py. A state is the longest
// beginning of a phrase that the labels so far end with. While a phrase is being read, each of its labels adds to the score;
// what was added is taken back when the phrase breaks off.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace unrolled {

class Hotwords {
 public:
  // `begins`: for each state its first arc, then the number of all arcs; arcs of a state in the order of their labels.
  std::vector<int64_t> begins;
  std::vector<int32_t> labels, targets;   // of arcs
  std::vector<int32_t> shorter;           // of each state the next shorter beginning; −1: none
  std::vector<double> partial, complete;  // what its labels have added so far; what the phrases that end with it add
  std::vector<double> final;              // what is added where the labels end in it
  int32_t start = 0;
  double most = 0;  // that one label can add

  // Makes a table of all states and labels, where it is not too large.
  void prepare() {
    width_ = labels.empty() ? 1 : *std::max_element(labels.begin(), labels.end()) + 1;
    const size_t states = shorter.size();
    if (states * width_ > kLargest) return;
    table_.assign(states * width_, 0);
    std::vector<int32_t> order{0};  // a shorter beginning comes before a longer one
    for (size_t i = 0; i < order.size(); ++i) {
      const int32_t state = order[i];
      int32_t* row = table_.data() + state * width_;
      if (shorter[state] >= 0) std::copy_n(table_.data() + shorter[state] * width_, width_, row);
      for (int64_t arc = begins[state]; arc < begins[state + 1]; ++arc) {
        row[labels[arc]] = targets[arc];
        order.push_back(targets[arc]);
      }
    }
  }

  int32_t next(int32_t state, int32_t label) const {
    if (!table_.empty()) return label < width_ ? table_[state * width_ + label] : 0;
    for (; state >= 0; state = shorter[state]) {
      const auto first = labels.begin() + begins[state], last = labels.begin() + begins[state + 1];
      const auto at = std::lower_bound(first, last, label);
      if (at != last && *at == label) return targets[at - labels.begin()];
    }
    return 0;
  }
  double added(int32_t from, int32_t to) const { return (partial[to] - partial[from]) + complete[to]; }

 private:
  static constexpr size_t kLargest = 1 << 23;
  std::vector<int32_t> table_;  // (states, labels): the next state; empty: the arcs are searched
  int64_t width_ = 0;
};

}  // namespace unrolled
