// Prefix beam search over CTC posteriors: the labellings with the likeliest paths, summed or the best path of each.
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

  // Keeps `beam` labellings that score at most `margin` below the best one; with `sum`, paths are added up.
  PrefixSearch(int labels, int blank, int beam, double margin, bool sum);
  void feed(const Frames& frames);
  std::vector<Labelling> best(int count) const;

 private:
  // A labelling (a node of the tree), with the score of its paths that end in a blank, and that of the others.
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
  std::vector<int32_t> slots_;                     // by node of the tree: its entry, if it has one
  std::vector<int32_t> first_child_, next_child_;  // the children of an entry that are entries
  std::vector<int32_t> taken_;                     // by label: the entry whose child with this label is an entry
  std::vector<double> scores_;
};

}  // namespace unrolled
