// Prefix beam search over CTC posteriors: the labellings with the likeliest paths, summed or the best path of each.
#pragma once

#include <memory>
#include <vector>

#include "ctc/ctc.h"
#include "search/hotwords.h"
#include "search/search.h"

namespace unrolled {

class PrefixSearch {
 public:
  struct Labelling {
    double score;
    std::vector<int32_t> labels;
  };

  // Keeps `beam` labellings that score at most `margin` below the best one; with `sum`, paths are added up.
  PrefixSearch(int labels, int blank, int beam, double margin, bool sum, std::shared_ptr<const Hotwords> hotwords);
  void feed(const Frames& frames);
  std::vector<Labelling> best(int count) const;

 private:
  // A labelling (a node of the tree), with the score of its paths that end in a blank, and that of the others.
  struct Entry {
    int32_t node;
    double blank, label, total;
    double ranked;  // with what hotwords add
  };
  struct Extension {
    double score, ranked;
    int32_t entry, label;
  };
  // Of a labelling: the state of the hotwords, and what they added to it.
  struct Heard {
    int32_t state;
    double added;
  };

  void step(const float* x);
  void stay(const float* x);
  void arrive(const float* x);
  void extend(const float* x);
  void keep_best();
  double bar_of_stays();
  Heard heard(int32_t node) const { return hotwords_ ? heard_[node] : Heard{0, 0.0}; }
  Heard heard_after(const Heard& before, int32_t label) const;

  int labels_, blank_;
  size_t beam_;
  double margin_;
  bool sum_;
  std::shared_ptr<const Hotwords> hotwords_;  // or none
  GrowingTree tree_;
  std::vector<Heard> heard_;  // by node of the tree
  std::vector<Entry> entries_, next_;
  std::vector<Extension> extensions_;
  std::vector<int32_t> order_;                     // of the labels, likeliest first
  std::vector<int32_t> slots_;                     // by node of the tree: its entry, if it has one
  std::vector<int32_t> first_child_, next_child_;  // the children of an entry that are entries
  std::vector<int32_t> taken_;                     // by label: the entry whose child with this label is an entry
  std::vector<double> scores_;
};

}  // namespace unrolled
