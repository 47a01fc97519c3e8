// All spellings or pronunciations of a lexicon, as a graph: a prefix tree, or the minimal automaton, where word ends are
// shared too. A word may have several spellings, and several words may share one. SpellingGraph in
// unrolled/search/lexicon/graph.py is the same in Python.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace unrolled {

class Lexicon {
 public:
  // An arc holds the number of spellings of its node that come before those behind it. The sum along a path is the rank
  // of the spelling that ends there (Lucchesi & Kowaltowski 1993). A node and the sum so far are a place: in an
  // automaton several beginnings lead to one node, and the sum tells them apart.
  struct Arc {
    uint32_t label : 30;
    uint32_t ends : 1;     // a spelling ends behind it
    uint32_t goes_on : 1;  // a spelling goes on behind it
    int32_t target, skipped;
    bool operator==(const Arc&) const = default;
  };

  // Spelling i belongs to words[i] and is labels[starts[i]] … labels[starts[i + 1] - 1]; none is empty.
  Lexicon(const int32_t* labels, const int64_t* starts, const int32_t* words, int64_t count, bool share_ends);

  int32_t size() const { return static_cast<int32_t>(counts_.size()); }  // nodes
  int32_t root() const { return size() - 1; }
  int32_t spellings() const { return static_cast<int32_t>(first_word_.size()) - 1; }  // different ones
  int32_t count(int32_t node) const { return counts_[node]; }  // of spellings from a node on, the one that ends there included
  std::span<const Arc> arcs(int32_t node) const {  // in the order of their labels
    return {arcs_.data() + first_arc_[node], arcs_.data() + first_arc_[node + 1]};
  }
  // The words of the spelling with this rank, in the order they were given.
  std::span<const int32_t> words(int32_t rank) const {
    return {words_.data() + first_word_[rank], words_.data() + first_word_[rank + 1]};
  }
  const Arc* find(int32_t node, int32_t label) const;  // the arc, or none
  size_t index(const Arc& arc) const { return &arc - arcs_.data(); }  // from 0 to arc_count() - 1
  size_t arc_count() const { return arcs_.size(); }
  size_t bytes() const;

 private:
  struct Builder;

  std::vector<int32_t> first_arc_{0}, counts_;  // by node
  std::vector<Arc> arcs_;
  std::vector<int32_t> first_word_;  // by rank
  std::vector<int32_t> words_;
};

}  // namespace unrolled
