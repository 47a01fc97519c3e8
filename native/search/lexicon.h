// A prefix tree of spellings or pronunciations. A word may have several, and several words may share one.
#pragma once

#include <cstdint>
#include <vector>

namespace unrolled {

class Lexicon {
 public:
  struct Node {
    int32_t label;                      // of the edge to this node
    int32_t first_child, child_count;   // children have consecutive numbers, in the order of their labels
    int32_t first_word, word_count;     // of words_: the words that end here
  };

  // Spelling i belongs to words[i] and is labels[starts[i]] … labels[starts[i + 1] - 1]; none is empty.
  Lexicon(const int32_t* labels, const int64_t* starts, const int32_t* words, int64_t count);

  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }
  const Node& operator[](int32_t node) const { return nodes_[node]; }  // 0 is the root
  const int32_t* words_of(const Node& node) const { return words_.data() + node.first_word; }
  int32_t find(int32_t node, int32_t label) const;  // the child, or -1

 private:
  std::vector<Node> nodes_;
  std::vector<int32_t> words_;
};

}  // namespace unrolled
