#include "search/lexicon.h"

#include <algorithm>
#include <numeric>

namespace unrolled {

Lexicon::Lexicon(const int32_t* labels, const int64_t* starts, const int32_t* words, int64_t count) {
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return std::lexicographical_compare(labels + starts[a], labels + starts[a + 1], labels + starts[b], labels + starts[b + 1]);
  });
  // Level by level: the node's spellings are order[begin] … order[end - 1], which agree in their first `depth` labels.
  struct Range {
    int64_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, count, 0}};
  nodes_.push_back({-1, 0, 0, 0, 0});
  for (size_t node = 0; node < ranges.size(); ++node) {
    auto [at, end, depth] = ranges[node];
    nodes_[node].first_word = static_cast<int32_t>(words_.size());
    for (; at < end && starts[order[at] + 1] - starts[order[at]] == depth; ++at) words_.push_back(words[order[at]]);
    nodes_[node].word_count = static_cast<int32_t>(words_.size()) - nodes_[node].first_word;
    nodes_[node].first_child = static_cast<int32_t>(nodes_.size());
    while (at < end) {
      const int32_t label = labels[starts[order[at]] + depth];
      const int64_t begin = at;
      while (at < end && labels[starts[order[at]] + depth] == label) ++at;
      ranges.push_back({begin, at, depth + 1});
      nodes_.push_back({label, 0, 0, 0, 0});
    }
    nodes_[node].child_count = static_cast<int32_t>(nodes_.size()) - nodes_[node].first_child;
  }
}

int32_t Lexicon::find(int32_t node, int32_t label) const {
  const Node& parent = nodes_[node];
  const auto begin = nodes_.begin() + parent.first_child, end = begin + parent.child_count;
  const auto found = std::lower_bound(begin, end, label, [](const Node& child, int32_t wanted) { return child.label < wanted; });
  return found != end && found->label == label ? static_cast<int32_t>(found - nodes_.begin()) : -1;
}

}  // namespace unrolled
