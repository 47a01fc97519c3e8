#include "search/lexicon.h"

#include <algorithm>
#include <numeric>

#include "search/search.h"

namespace unrolled {

// Reads spellings in order. The nodes of the last one are open; a node is stored when no later spelling goes through it
// (Daciuk et al. 2000).
struct Lexicon::Builder {
  struct Open {
    bool final = false;
    int32_t count = 0;
    std::vector<Arc> arcs;
  };

  Lexicon& lexicon;
  bool share_ends;
  std::vector<Open> path = std::vector<Open>(1);
  std::span<const int32_t> last;
  Table known;  // stored nodes, if they are shared

  void read(std::span<const int32_t> spelling) {
    const auto [differs, _] = std::mismatch(spelling.begin(), spelling.end(), last.begin(), last.end());
    close(differs - spelling.begin());
    path.resize(spelling.size() + 1);
    path.back().final = true;
    path.back().count = 1;
    last = spelling;
  }

  // Stores the open nodes that are deeper.
  void close(size_t depth) {
    while (path.size() > depth + 1) {
      const Open node = std::move(path.back());
      path.pop_back();
      Open& parent = path.back();
      const auto label = static_cast<uint32_t>(last[path.size() - 1]);
      parent.arcs.push_back({label, node.final, !node.arcs.empty(), store(node), parent.count});
      parent.count += node.count;
    }
  }

  int32_t store(const Open& node) {
    const int32_t made = lexicon.size();
    if (share_ends) {
      // equal arcs are enough: the first one has skipped the spelling that ends here, if one does
      int32_t* place = known.find(hash(node.arcs), [&](int32_t other) { return std::ranges::equal(lexicon.arcs(other), node.arcs); });
      if (*place >= 0) return *place;
      known.put(place, made);
    }
    lexicon.arcs_.insert(lexicon.arcs_.end(), node.arcs.begin(), node.arcs.end());
    lexicon.first_arc_.push_back(static_cast<int32_t>(lexicon.arcs_.size()));
    lexicon.counts_.push_back(node.count);
    if (share_ends && known.full()) {
      known.grow();
      for (int32_t i = 0; i <= made; ++i) known.put(known.find(hash(lexicon.arcs(i)), [](int32_t) { return false; }), i);
    }
    return made;
  }

  static uint64_t hash(std::span<const Arc> arcs) {
    uint64_t mixed = arcs.size();
    for (const Arc& arc : arcs) mixed = scrambled(mixed ^ static_cast<uint64_t>(arc.target) << 32 ^ arc.label) + arc.skipped;
    return mixed;
  }
};

Lexicon::Lexicon(const int32_t* labels, const int64_t* starts, const int32_t* words, int64_t count, bool share_ends) {
  const auto spelling = [&](int64_t i) { return std::span(labels + starts[i], labels + starts[i + 1]); };
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return std::ranges::lexicographical_compare(spelling(a), spelling(b));
  });
  Builder builder{*this, share_ends};
  for (const int64_t i : order) {
    if (!std::ranges::equal(spelling(i), builder.last)) {
      builder.read(spelling(i));
      first_word_.push_back(static_cast<int32_t>(words_.size()));
    }
    words_.push_back(words[i]);
  }
  builder.close(0);
  builder.store(builder.path[0]);
  first_word_.push_back(static_cast<int32_t>(words_.size()));
  for (auto* one : {&first_arc_, &counts_, &first_word_, &words_}) one->shrink_to_fit();
  arcs_.shrink_to_fit();
}

const Lexicon::Arc* Lexicon::find(int32_t node, int32_t label) const {
  const auto all = arcs(node);
  const auto found = std::ranges::lower_bound(all, static_cast<uint32_t>(label), {}, [](const Arc& arc) { return uint32_t{arc.label}; });
  return found != all.end() && static_cast<int32_t>(found->label) == label ? &*found : nullptr;
}

size_t Lexicon::bytes() const {
  size_t bytes = arcs_.size() * sizeof(Arc);
  for (const auto* one : {&first_arc_, &counts_, &first_word_, &words_}) bytes += one->size() * sizeof(int32_t);
  return bytes;
}

}  // namespace unrolled
