// n-gram language models with back-off, as an ARPA file holds them:
//   log p(w | c) = log p of the n-gram "c w" where it is stored, else backoff(c) + log p(w | c without its first word).
//
// All n-grams are nodes of one tree: the node of "a b c" is the child of "a b" for the word c, found through a hash table.
// A context that cannot matter any more (nothing continues it, and it has no back-off) is never a state. So the state of a
// hypothesis is the number of one node, and hypotheses with the same future have the same state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/huge.h"
#include "ngram/words.h"

namespace unrolled {

// What a model remembers of the words so far. The default one remembers nothing, not even that a sentence has begun.
struct NGramState {
  uint32_t node = 0;

  bool operator==(const NGramState&) const = default;
  size_t hash() const { return node * size_t{0x9E3779B97F4A7C15u}; }
};

class NGramModel {
 public:
  static constexpr uint32_t kUnknown = 0;         // the number of <unk>, which every model has
  static constexpr float kUnknownMissing = -100;  // its log10 probability where nobody gave one, as KenLM's
  static constexpr float kImpossible = -99;       // log10 of what has no probability
  static constexpr int kMostOrder = 255;

  explicit NGramModel(int order);

  // Building, in log10. Unigrams come first, then longer n-grams, each order after the one below it; their words must have
  // unigrams. False for an n-gram that is there already.
  bool add_unigram(std::string_view word, float prob, float backoff);
  bool add(const uint32_t* words, int count, float prob, float backoff);
  bool has(const uint32_t* words, int count) const;
  void reserve(size_t ngrams);  // of all orders, where it is known
  // Links the nodes. Nothing is added after this, and nothing is scored before.
  void finish_building();
  // The same, with back-offs such that the probabilities after every context sum to one.
  void finish_normalised();

  // Scoring, in natural logarithms, from any number of threads. Words are numbers below words().size().
  NGramState start() const { return {begin_ == Words::kNone ? 0 : next_of(node_of(begin_))}; }  // after <s>
  float score(const NGramState& state, uint32_t word, NGramState& next) const {
    return kLog10 * score_log10(state, word, next);
  }
  float finish(const NGramState& state) const {  // of </s>
    NGramState next;
    return score(state, end_ == Words::kNone ? kUnknown : end_, next);
  }

  // The same in log10, with the length of the n-gram that was found where it is wanted.
  float score_log10(const NGramState& state, uint32_t word, NGramState& next, int* length = nullptr) const;

  int order() const { return order_; }
  const Words& words() const { return words_; }
  // The number of a word; kUnknown for one that the model does not have.
  uint32_t find(std::string_view word) const {
    const uint32_t number = words_.find(word);
    return number == Words::kNone ? kUnknown : number;
  }
  uint32_t begin_word() const { return begin_; }  // <s>; Words::kNone where there is none
  uint32_t end_word() const { return end_; }      // </s>; the same
  bool has_unknown() const { return has_unknown_; }

  // What is stored: nodes from 1 to node_count() - 1, except blank ones, each of `length` words.
  uint32_t node_count() const { return static_cast<uint32_t>(nodes_.size()); }
  int length(uint32_t node) const { return lengths_[node]; }
  bool is_blank(uint32_t node) const;  // there only to lead to longer n-grams, or an <unk> that nobody gave
  float prob(uint32_t node) const { return nodes_[node].prob; }
  float backoff(uint32_t node) const { return nodes_[node].backoff; }
  void words_of(uint32_t node, uint32_t* words) const;
  uint32_t last_word(uint32_t node) const { return node ? nodes_[node].word : Words::kNone; }
  size_t count(int order) const;
  size_t bytes() const;

 private:
  static constexpr float kLog10 = 2.302585092994046f;
  static constexpr uint32_t kIsState = 1u << 31;

  struct Node {
    uint32_t parent, word;
    float prob, backoff;
    uint32_t link;  // of a state: where it backs off to; of another node: the state after it. kIsState tells them apart

    uint32_t target() const { return link & ~kIsState; }
  };

  // An n-gram of two words or more in the hash table, with what scoring asks for: one read of a far place finds it all.
  struct Slot {
    uint32_t parent = 0, word = 0;
    uint32_t node = 0;  // 0 where the slot is empty
    uint32_t next = 0;  // the state after it
    float prob = 0;
  };

  static uint32_t node_of(uint32_t word) { return 1 + word; }
  static uint64_t hash(uint32_t parent, uint32_t word);
  uint32_t next_of(uint32_t node) const { return nodes_[node].link & kIsState ? node : nodes_[node].target(); }
  size_t place_of(uint64_t hash) const { return static_cast<unsigned __int128>(hash) * slots_.size() >> 64; }
  const Slot* slot_of(uint32_t parent, uint32_t word) const;
  uint32_t child(uint32_t parent, uint32_t word) const;
  uint32_t append(uint32_t parent, uint32_t word, float prob, float backoff);
  void put(uint32_t node);
  void grow(size_t slots);
  bool has_room(size_t ngrams) const { return ngrams * 4 <= slots_.size() * 3; }
  void link_all(int length);
  void fill_slots();
  void link(uint32_t node);
  void normalise(int length);
  // The longest n-gram that another one, of two words or more, ends in, and the back-offs on the way there.
  std::pair<uint32_t, float> ending(uint32_t node) const;

  int order_;
  Words words_;
  uint32_t begin_ = Words::kNone, end_ = Words::kNone;
  bool has_unknown_ = false;
  HugeVector<Node> nodes_;         // 0 is the root, then the unigrams in the order of their words
  std::vector<uint8_t> lengths_;   // of the nodes' n-grams
  HugeVector<Slot> slots_;         // of longer n-grams; an n-gram stands where its hash says, or in the next free place
  std::unordered_set<uint32_t> blanks_;
};

}  // namespace unrolled
