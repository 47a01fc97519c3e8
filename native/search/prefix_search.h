// Prefix beam search over CTC posteriors: the labellings whose paths, added up or the best of them, are likeliest.
#pragma once

#include <vector>

#include "ctc/ctc.h"
#include "search/search.h"

namespace unrolled {

class PrefixSearch {
 public:
  struct Labelling {
    double score;
    std::vector<int32_t> labels;
  };

  // `beam` labellings are kept, none whose score is more than `margin` below the best; paths are added up if `sum`.
  PrefixSearch(int labels, int blank, int beam, double margin, bool sum);
  void feed(const Frames& frames);
  std::vector<Labelling> best(int count) const;

 private:
  // A labelling, a node of the tree, with the score of its paths that end in a blank and of those that do not.
  struct Entry {
    int32_t node;
    double blank, label, total;
  };
  struct Extension {
    double score;
    int32_t entry, label;
  };

  void step(const float* x);
  void stay(const float* x);
  void arrive(const float* x);
  void extend(const float* x);
  void keep_best();
  double bar_of_stays();

  int labels_, blank_;
  size_t beam_;
  double margin_;
  bool sum_;
  GrowingTree tree_;
  std::vector<Entry> entries_, next_;
  std::vector<Extension> extensions_;
  std::vector<int32_t> order_;                     // of the labels, likeliest first
  std::vector<int32_t> slots_;                     // of the tree's nodes: which entry it is, if any
  std::vector<int32_t> first_child_, next_child_;  // entries that are children of an entry
  std::vector<int32_t> taken_;                     // by label: the entry whose child with this label is an entry
  std::vector<double> scores_;
};

}  // namespace unrolled
