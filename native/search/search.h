// Shared by the searches over frames: the merging of paths, and hash tables of slots.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace unrolled {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// log(e^a + e^b), or the larger.
inline double merged(double a, double b, bool sum) {
  const double most = a > b ? a : b, least = a > b ? b : a;
  if (!sum || most - least > 40 || least == kNever) return most;  // e^-40 is below float64's last bit
  return most + std::log1p(std::exp(least - most));
}

inline uint64_t packed(uint32_t high, uint32_t low) { return static_cast<uint64_t>(high) << 32 | low; }

inline uint64_t scrambled(uint64_t key) {
  key ^= key >> 32;
  key *= 0x9E3779B97F4A7C15u;
  key ^= key >> 29;
  key *= 0xBF58476D1CE4E5B9u;
  return key ^ key >> 32;
}

// A hash table of numbers with open addressing. The caller decides which entries are equal. Clearing takes O(1).
class Table {
 public:
  // The place of an equal entry, or the free place for it.
  template <class Equal>
  int32_t* find(uint64_t hash, const Equal& equal) {
    for (uint64_t at = hash & mask_;; at = (at + 1) & mask_) {
      Place& place = places_[at];
      if (place.stamp != stamp_) {
        place.index = -1;
        return &place.index;
      }
      if (equal(place.index)) return &place.index;
    }
  }
  // Fills the free place that `find` returned.
  void put(int32_t* place, int32_t index) {
    auto* taken = reinterpret_cast<Place*>(reinterpret_cast<char*>(place) - offsetof(Place, index));
    taken->index = index;
    taken->stamp = stamp_;
    ++used_;
  }
  bool full() const { return 2 * used_ > mask_; }
  void clear() {
    used_ = 0;
    if (++stamp_ == 0) {
      places_.assign(places_.size(), Place{});
      stamp_ = 1;
    }
  }
  // Doubles the size; all entries must be inserted again.
  void grow() {
    places_.assign(2 * places_.size(), Place{});
    mask_ = places_.size() - 1;
    stamp_ = 1, used_ = 0;
  }

 private:
  struct Place {
    uint32_t stamp = 0;
    int32_t index = -1;
  };
  std::vector<Place> places_ = std::vector<Place>(1024);
  uint64_t mask_ = 1023;
  uint32_t stamp_ = 1;
  uint64_t used_ = 0;
};

// A tree whose nodes are made on demand: the child of `parent` for `label` is always the same node.
class GrowingTree {
 public:
  struct Node {
    int32_t parent, label;
  };
  GrowingTree() { nodes_.push_back({-1, -1}); }  // 0 is the root
  const Node& operator[](int32_t node) const { return nodes_[node]; }
  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }
  int32_t find(int32_t parent, int32_t label) { return *place(parent, label); }  // -1: it is not made yet
  int32_t child(int32_t parent, int32_t label) {
    int32_t* found = place(parent, label);
    if (*found >= 0) return *found;
    const int32_t made = size();
    nodes_.push_back({parent, label});
    table_.put(found, made);
    if (table_.full()) {
      table_.grow();
      for (int32_t node = 1; node < size(); ++node) table_.put(place(nodes_[node].parent, nodes_[node].label), node);
    }
    return made;
  }

 private:
  int32_t* place(int32_t parent, int32_t label) {
    return table_.find(scrambled(packed(parent, label)), [&](int32_t node) {
      return nodes_[node].parent == parent && nodes_[node].label == label;
    });
  }
  std::vector<Node> nodes_;
  Table table_;
};

}  // namespace unrolled
