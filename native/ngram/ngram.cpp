#include "ngram/ngram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <unordered_map>

namespace unrolled {

namespace {

constexpr uint32_t kAhead = 16;    // nodes
constexpr double kNothing = 1e-6;  // of probabilities in float32 that sum to one

}  // namespace

NGramModel::NGramModel(int order) : order_(order) {
  if (order < 1 || order > kMostOrder) throw std::invalid_argument("the order must be from 1 to 255");
  nodes_.push_back({0, 0, 0, 0, 0});
  lengths_.push_back(0);
  words_.add("<unk>");
  append(0, kUnknown, kUnknownMissing, 0);
  slots_.resize(1024);
}

bool NGramModel::add_unigram(std::string_view word, float prob, float backoff) {
  const bool unknown = word == "<unk>" || word == "<UNK>";
  if (unknown) {
    if (has_unknown_) return false;
    has_unknown_ = true;
    nodes_[node_of(kUnknown)].prob = prob;
    nodes_[node_of(kUnknown)].backoff = backoff;
    return true;
  }
  const uint32_t before = words_.size();
  const uint32_t number = words_.add(word);
  if (words_.size() == before) return false;
  if (word == "<s>") begin_ = number;
  if (word == "</s>") end_ = number;
  append(0, number, prob, backoff);
  return true;
}

bool NGramModel::add(const uint32_t* words, int count, float prob, float backoff) {
  uint32_t parent = node_of(words[0]);
  for (int i = 1; i + 1 < count; ++i) {
    uint32_t node = child(parent, words[i]);
    if (!node) {  // some tools leave out what leads to an n-gram
      node = append(parent, words[i], std::numeric_limits<float>::quiet_NaN(), 0);
      put(node);
      blanks_.insert(node);
    }
    parent = node;
  }
  if (child(parent, words[count - 1])) return false;
  put(append(parent, words[count - 1], prob, backoff));
  return true;
}

bool NGramModel::has(const uint32_t* words, int count) const {
  uint32_t node = node_of(words[0]);
  for (int i = 1; i < count && node; ++i) node = child(node, words[i]);
  return node && !is_blank(node);
}

void NGramModel::reserve(size_t ngrams) {
  nodes_.reserve(ngrams);
  lengths_.reserve(ngrams);
  if (!has_room(ngrams)) grow(ngrams * 4 / 3 + 1);
}

void NGramModel::finish_building() {
  for (int length = 1; length <= order_; ++length) link_all(length);  // what a node links to is shorter
  fill_slots();
}

void NGramModel::finish_normalised() {
  for (int length = 1; length <= order_; ++length) {
    if (length > 1) normalise(length - 1);
    link_all(length);
  }
  fill_slots();
}

void NGramModel::fill_slots() {
  for (size_t place = 0; place < slots_.size(); ++place) {
    if (place + kAhead < slots_.size()) __builtin_prefetch(&nodes_[slots_[place + kAhead].node]);
    Slot& slot = slots_[place];
    if (!slot.node) continue;
    slot.next = next_of(slot.node);
    slot.prob = nodes_[slot.node].prob;
  }
}

void NGramModel::link_all(int length) {
  for (uint32_t node = 1; node < node_count(); ++node) {
    // what is far away is asked for some nodes ahead: the parent, and then where the ending would be
    if (node + 2 * kAhead < node_count()) __builtin_prefetch(&nodes_[nodes_[node + 2 * kAhead].parent]);
    if (node + kAhead < node_count()) {
      const Node& soon = nodes_[node + kAhead];
      __builtin_prefetch(&slots_[place_of(hash(nodes_[soon.parent].target(), soon.word))]);
    }
    if (lengths_[node] == length) link(node);
  }
}

// Gives contexts of a length, whose own links are there, their back-offs: what the longer n-grams leave, over what those
// would have without them.
void NGramModel::normalise(int length) {
  std::unordered_map<uint32_t, std::pair<double, double>> sums;
  for (uint32_t node = 1; node < node_count(); ++node) {
    if (lengths_[node] != length + 1 || blanks_.contains(node)) continue;
    const auto [found, skipped] = ending(node);
    auto& [own, lower] = sums[nodes_[node].parent];
    own += std::pow(10.0, nodes_[node].prob);
    lower += std::pow(10.0, skipped + nodes_[found].prob);
  }
  for (const auto& [context, sum] : sums) {
    const double left = 1 - sum.first, over = 1 - sum.second;
    // where all words are there, nothing is ever left to shorter contexts
    if (over > kNothing) nodes_[context].backoff = left > kNothing ? std::log10(left / over) : kImpossible;
  }
}

void NGramModel::link(uint32_t node) {
  Node& self = nodes_[node];
  uint32_t found = 0;
  if (lengths_[node] > 1) {
    float skipped;
    std::tie(found, skipped) = ending(node);
    if (blanks_.contains(node)) self.prob = skipped + nodes_[found].prob;
  }
  const bool matters = lengths_[node] < order_ && (self.link & kIsState || self.backoff != 0);
  self.link = next_of(found) | (matters ? kIsState : 0);
}

float NGramModel::score_log10(const NGramState& state, uint32_t word, NGramState& next, int* length) const {
  float skipped = 0;
  uint32_t found = 0;
  for (uint32_t context = state.node; context; context = nodes_[context].target()) {
    if (const Slot* slot = slot_of(context, word)) {
      next.node = slot->next;
      skipped += slot->prob;
      found = slot->node;
      break;
    }
    skipped += nodes_[context].backoff;
  }
  if (!found) {
    found = node_of(word);
    next.node = next_of(found);
    skipped += nodes_[found].prob;
  }
  if (length) {
    while (blanks_.contains(found)) found = ending(found).first;
    *length = lengths_[found];
  }
  return skipped;
}

std::pair<uint32_t, float> NGramModel::ending(uint32_t node) const {
  float skipped = nodes_[nodes_[node].parent].backoff;
  uint32_t context = nodes_[nodes_[node].parent].target(), found;
  while (!(found = child(context, nodes_[node].word))) {
    skipped += nodes_[context].backoff;
    context = nodes_[context].target();
  }
  return {found, skipped};
}

const NGramModel::Slot* NGramModel::slot_of(uint32_t parent, uint32_t word) const {
  const Slot* slot = &slots_[place_of(hash(parent, word))];
  for (; slot->node; slot = slot + 1 == slots_.data() + slots_.size() ? slots_.data() : slot + 1)
    if (slot->parent == parent && slot->word == word) return slot;
  return nullptr;
}

uint32_t NGramModel::child(uint32_t parent, uint32_t word) const {
  if (parent == 0) return node_of(word);
  const Slot* slot = slot_of(parent, word);
  return slot ? slot->node : 0;
}

uint64_t NGramModel::hash(uint32_t parent, uint32_t word) {
  uint64_t mixed = (uint64_t{parent} << 32 | word) * 0x9E3779B97F4A7C15u;
  mixed = (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93u;
  return mixed ^ mixed >> 29;
}

uint32_t NGramModel::append(uint32_t parent, uint32_t word, float prob, float backoff) {
  const uint32_t node = node_count();
  if (node >= kIsState) throw std::length_error("an n-gram model holds fewer than 2,147,483,648 n-grams");
  nodes_.push_back({parent, word, prob, backoff, 0});
  lengths_.push_back(lengths_[parent] + 1);
  nodes_[parent].link |= kIsState;
  return node;
}

void NGramModel::put(uint32_t node) {
  if (!has_room(nodes_.size() - words_.size())) return grow(slots_.size() * 2);  // which puts all nodes
  size_t place = place_of(hash(nodes_[node].parent, nodes_[node].word));
  while (slots_[place].node) place = place + 1 == slots_.size() ? 0 : place + 1;
  slots_[place] = {nodes_[node].parent, nodes_[node].word, node, 0, 0};
}

void NGramModel::grow(size_t slots) {
  slots_.assign(slots, {});
  for (size_t node = node_of(words_.size()); node < nodes_.size(); ++node) put(static_cast<uint32_t>(node));
}

bool NGramModel::is_blank(uint32_t node) const {
  return blanks_.contains(node) || (node == node_of(kUnknown) && !has_unknown_);
}

void NGramModel::words_of(uint32_t node, uint32_t* words) const {
  for (int place = lengths_[node]; place > 0; node = nodes_[node].parent) words[--place] = nodes_[node].word;
}

size_t NGramModel::count(int order) const {
  size_t all = std::count(lengths_.begin(), lengths_.end(), static_cast<uint8_t>(order));
  for (uint32_t node : blanks_) all -= lengths_[node] == order;
  return all - (order == 1 && !has_unknown_);
}

size_t NGramModel::bytes() const {
  return nodes_.capacity() * sizeof(Node) + lengths_.capacity() + slots_.capacity() * sizeof(Slot);
}

}  // namespace unrolled
