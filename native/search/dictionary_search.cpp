#include "search/dictionary_search.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <unordered_map>

#include "runtime/parallel.h"

namespace unrolled {
namespace {

constexpr double kLog10 = 2.302585092994045684;
constexpr size_t kCache = 1 << 15;
constexpr size_t kGarbage = 1 << 16;  // records; with more, the unused ones are removed

uint64_t key_hash(int32_t node, uint32_t lm, int32_t history) {
  const uint64_t key = static_cast<uint64_t>(lm) << 32 | static_cast<uint32_t>(node);
  return scrambled(key ^ static_cast<uint64_t>(history) * 0xD6E8FEB86659FD93u);
}

}  // namespace

Dictionary::Dictionary(std::shared_ptr<const Lexicon> given_lexicon, std::shared_ptr<const WordModel> given_lm,
                       const std::vector<std::string>& words)
    : lexicon(std::move(given_lexicon)), lm(std::move(given_lm)) {
  if (!lm) return;
  for (const std::string& word : words) lm_words.push_back(lm->find(word));
  look_ahead.assign(lexicon->size(), kNever);
  for (int32_t node = lexicon->size() - 1; node > 0; --node) {  // children have higher numbers than their parents
    const Lexicon::Node& here = (*lexicon)[node];
    double best = kNever;
    for (int32_t i = 0; i < here.word_count; ++i) {
      const uint32_t word = lm_words[lexicon->words_of(here)[i]];
      best = std::max(best, static_cast<double>(lm->unigram(word)) * kLog10);
    }
    for (int32_t i = 0; i < here.child_count; ++i) best = std::max(best, look_ahead[here.first_child + i]);
    look_ahead[node] = best;
  }
  look_ahead[0] = 0;  // before a word begins, nothing is known about it
}

DictionarySearch::DictionarySearch(std::shared_ptr<const Dictionary> dictionary, const DictionaryOptions& options)
    : dictionary_(std::move(dictionary)), lexicon_(dictionary_->lexicon.get()), lm_(dictionary_->lm.get()),
      options_(options), looks_ahead_(lm_ && options.look_ahead) {
  if (lm_) cache_.resize(kCache);
  Slot begin{0, lm_ ? lm_->start() : 0, 0, 0, {}, {}, 0.0};
  begin.blank.score = 0;
  slots_.push_back(begin);
  unknown_in_tree_.push_back(0);
  child_stayed_.push_back(0);
}

void DictionarySearch::feed(const Frames& frames) {
  for (int64_t t = 0; t < frames.count; ++t) step(frames.at(t));
}

int32_t DictionarySearch::label_of(int32_t node) const {
  if (node == 0) return options_.separator;
  if (node < ends_at()) return (*lexicon_)[node].label;
  return node < unknowns_at() ? node - ends_at() : unknowns_[node - unknowns_at()].label;
}

void DictionarySearch::merge(Path& into, const Path& path) const {
  if (path.score == kNever) return;
  const double score = merged(into.score, path.score, options_.sum);
  if (path.score > into.score) into = path;
  into.score = score;
}

DictionarySearch::Path DictionarySearch::total_of(const Slot& slot) const {
  Path total = slot.blank;
  merge(total, slot.label);
  return total;
}

void DictionarySearch::step(const float* x) {
  next_.clear();
  table_.clear();
  bar_ = kNever;
  clock_ = 0;
  for (const Slot& slot : slots_) stay(slot, total_of(slot), x);
  raise_bar(x);
  for (const Slot& slot : slots_) move(slot, total_of(slot), x);
  ++frame_;
  keep_best();
  write_records();
  collect_garbage();
}

// The slot gets a blank, or its last label again.
void DictionarySearch::stay(const Slot& slot, const Path& total, const float* x) {
  Path path = total;
  path.score += x[options_.blank];
  add(slot.node, slot.lm, slot.history, path, true, false);
  const int32_t last = label_of(slot.node);
  if (last < 0) return;
  if (slot.node == 0) {  // between words: separators, with or without blanks between them
    path = total;
    path.score += x[last];
  } else {
    path = slot.label;
    path.score += x[last];
    path.end = frame_ + 1;
  }
  add(slot.node, slot.lm, slot.history, path, false, false);
}

// The slot gets a new label.
void DictionarySearch::move(const Slot& slot, const Path& total, const float* x) {
  const bool word_ended = slot.node >= ends_at() && slot.node < unknowns_at();
  if (word_ended && options_.separator >= 0) {
    Path path = total;
    path.score += x[options_.separator];
    add(0, slot.lm, slot.history, path, false, false);
    return;
  }
  if (slot.node < unknowns_at()) move_in_tree(slot, total, x);
  if (options_.unknown_penalty > kNever && (begins_word(slot.node) || slot.node >= unknowns_at())) move_unknown(slot, total, x);
}

void DictionarySearch::move_in_tree(const Slot& slot, const Path& total, const float* x) {
  const int32_t last = label_of(slot.node);
  const bool begins = begins_word(slot.node);
  const Lexicon::Node& here = (*lexicon_)[begins ? 0 : slot.node];
  const double expected = begins ? 0.0 : look_ahead(slot.node);
  const bool single = !begins || !options_.sum;  // the child can be reached only from this slot in this frame
  for (int32_t node = here.first_child; node < here.first_child + here.child_count; ++node) {
    const Lexicon::Node& child = (*lexicon_)[node];
    const Path& from = needs_blank(child.label, last) ? slot.blank : total;
    if (from.score == kNever) continue;
    const double score = from.score + (x[child.label] - expected);
    if (!child.word_count && single && hopeless(key_hash(node, slot.lm, slot.history), score + look_ahead(node))) continue;
    Path path = from;
    path.score = score;
    path.fresh = true;
    path.word = -1;
    const bool ends_may_stay = options_.sum || !lm_ || score + options_.word_bonus >= bar_;
    for (int32_t i = 0; i < child.word_count; ++i) {
      const int32_t word = lexicon_->words_of(child)[i];
      const uint32_t lm_word = lm_ ? dictionary_->lm_words[word] : 0;
      if (!ends_may_stay && no_end_stays(child.label, lm_word)) continue;
      end_word(slot, path, child.label, word, lm_word, word);
    }
    if (child.child_count) {
      path.score += look_ahead(node);
      add(node, slot.lm, slot.history, path, false, single);
    }
  }
}

// The slot gets a label of a word outside the lexicon.
void DictionarySearch::move_unknown(const Slot& slot, const Path& total, const float* x) {
  const bool begins = begins_word(slot.node);
  const int32_t last = label_of(slot.node), spelt = begins ? 0 : slot.node - unknowns_at();
  for (int32_t label = 0; label < options_.labels; ++label) {
    if (label == options_.blank || label == options_.separator) continue;
    Path path = needs_blank(label, last) ? slot.blank : total;
    if (path.score == kNever) continue;
    path.score += x[label] + (begins ? options_.unknown_penalty : 0.0);
    path.fresh = true;
    path.word = -1;
    const double hope = path.score + std::max(options_.word_bonus, 0.0);
    if (!options_.sum && hope < bar_) {  // a new slot would not be kept; an existing one can still get this path
      if (child_stayed_[spelt] != frame_ + 1 && !unknown_ends_[label]) continue;
      if (unknowns_.find(spelt, label) < 0) continue;
    }
    const int32_t longer = unknowns_.child(spelt, label);
    if (longer == static_cast<int32_t>(unknown_in_tree_.size())) {
      const int32_t same = unknown_in_tree_[spelt];
      unknown_in_tree_.push_back(same < 0 ? -1 : lexicon_->find(same, label));
      child_stayed_.push_back(0);
    }
    const int32_t same = unknown_in_tree_[longer];
    if (same < 0 || !(*lexicon_)[same].word_count) end_word(slot, path, label, kUnknownWord, WordModel::kUnknown, -1 - longer);
    add(unknowns_at() + longer, slot.lm, slot.history, path, false, !begins || !options_.sum);
  }
}

// Ends the last word of a path. `identity` distinguishes words, unknown ones by their spelling.
void DictionarySearch::end_word(const Slot& slot, const Path& path, int32_t label, int32_t word, uint32_t lm_word,
                                int32_t identity) {
  Path ended = path;
  ended.word = word;
  ended.score += options_.word_bonus;
  uint32_t next = 0;
  if (lm_) ended.score += options_.lm_weight * score_word(slot.lm, lm_word, next);
  const int32_t history = options_.recombine ? 0 : histories_.child(slot.history, identity);
  add(ends_at() + label, next, history, ended, false, !options_.sum);
}

double DictionarySearch::score_word(uint32_t state, uint32_t word, uint32_t& next) {
  const uint64_t key = static_cast<uint64_t>(state) << 32 | word;
  Cached& cached = cache_[scrambled(key) % kCache];
  if (cached.key != key) {
    cached.log10 = lm_->score(state, word, cached.next);
    cached.key = key;
  }
  next = cached.next;
  return static_cast<double>(cached.log10) * kLog10;
}

// Adds a path to its slot. No slot is made for a path that is below the bar and the only one to it (`single`).
void DictionarySearch::add(int32_t node, uint32_t lm, int32_t history, const Path& path, bool blank, bool single) {
  if (path.score == kNever) return;
  const uint64_t hash = key_hash(node, lm, history);
  if (single && hopeless(hash, path.score)) return;
  int32_t* place = table_.find(hash, [&](int32_t i) {
    return next_[i].node == node && next_[i].lm == lm && next_[i].history == history;
  });
  if (*place < 0) {
    if (single && path.score < bar_) return;
    const auto made = static_cast<int32_t>(next_.size());
    next_.push_back({node, lm, history, clock_++, {}, {}, kNever});
    table_.put(place, made);
    merge(blank ? next_[made].blank : next_[made].label, path);
    if (table_.full()) {
      table_.grow();
      for (int32_t i = 0; i <= made; ++i)
        table_.put(table_.find(key_hash(next_[i].node, next_[i].lm, next_[i].history), [](int32_t) { return false; }), i);
    }
    return;
  }
  // not by the time at which the slot was made: the worse path that made it may be left out
  if (path.score > std::max(next_[*place].blank.score, next_[*place].label.score)) next_[*place].order = clock_++;
  merge(blank ? next_[*place].blank : next_[*place].label, path);
}

// A lower bound of the score of the worst slot that is kept.
//
// Every slot has its score from itself in the last frame, from its parent in the tree, or from both. So the best 2·beam
// of these scores belong to at least `beam` slots.
void DictionarySearch::raise_bar(const float* x) {
  any_end_.assign(options_.labels, 0);
  if (next_.empty()) return;
  std::fill(staying_.begin(), staying_.end(), 0);
  std::fill(ends_.begin(), ends_.end(), 0);
  scores_.clear();
  for (const Slot& slot : next_) {
    const uint64_t hash = key_hash(slot.node, slot.lm, slot.history);
    staying_[hash % kStaying / 64] |= uint64_t{1} << hash % 64;
    if (slot.node >= unknowns_at()) child_stayed_[unknowns_[slot.node - unknowns_at()].parent] = frame_ + 1;
    else if (slot.node >= ends_at() && lm_) note_end(slot);
    else if (slot.node >= ends_at()) any_end_[slot.node - ends_at()] = 1;
    scores_.push_back(merged(slot.blank.score, slot.label.score, options_.sum));
  }
  if (options_.unknown_penalty > kNever) {
    unknown_ends_.resize(options_.labels);
    for (int32_t label = 0; label < options_.labels; ++label)
      unknown_ends_[label] = lm_ ? !no_end_stays(label, WordModel::kUnknown) : any_end_[label];
  }
  bar_ = *std::max_element(scores_.begin(), scores_.end()) - options_.margin;
  const auto beam = static_cast<size_t>(options_.beam);
  if (options_.per_node) return;
  const auto reach = [&](size_t rank) {
    if (scores_.size() < rank) return;
    std::nth_element(scores_.begin(), scores_.begin() + (rank - 1), scores_.end(), std::greater<>());
    bar_ = std::max(bar_, scores_[rank - 1]);
  };
  reach(beam);
  collect_scores(x);
  reach(2 * beam);
}

// A state of the model tells its last word, unless the model ignores all words. So a word whose end would be below the
// bar needs no score: no existing slot can get its path.
void DictionarySearch::note_end(const Slot& slot) {
  const int32_t label = slot.node - ends_at();
  const uint32_t word = lm_->last_word(slot.lm);
  if (word == WordModel::kForgotten) {
    any_end_[label] = 1;
    return;
  }
  const uint64_t hash = key_hash(label, word, 0);
  ends_[hash % kStaying / 64] |= uint64_t{1} << hash % 64;
}

bool DictionarySearch::no_end_stays(int32_t label, uint32_t lm_word) const {
  const uint64_t hash = key_hash(label, lm_word, 0);
  return !any_end_[label] && !(ends_[hash % kStaying / 64] >> hash % 64 & 1);
}

// Adds the paths to child nodes of the tree that are above the bar.
void DictionarySearch::collect_scores(const float* x) {
  for (const Slot& slot : slots_) {
    if (slot.node >= ends_at() || (slot.node == 0 && options_.separator < 0)) continue;
    const int32_t last = label_of(slot.node);
    const double total = merged(slot.blank.score, slot.label.score, options_.sum);
    const double expected = look_ahead(slot.node);
    const Lexicon::Node& here = (*lexicon_)[slot.node];
    for (int32_t node = here.first_child; node < here.first_child + here.child_count; ++node) {
      const Lexicon::Node& child = (*lexicon_)[node];
      if (!child.child_count) continue;
      const double score = (needs_blank(child.label, last) ? slot.blank.score : total) + (x[child.label] - expected) + look_ahead(node);
      if (score > bar_) scores_.push_back(score);
    }
  }
}

void DictionarySearch::keep_best() {
  double best = kNever;
  for (Slot& slot : next_) {
    slot.total = merged(slot.blank.score, slot.label.score, options_.sum);
    best = std::max(best, slot.total);
  }
  chosen_.clear();
  for (size_t i = 0; i < next_.size(); ++i)
    if (next_[i].total >= best - options_.margin) chosen_.push_back(static_cast<int32_t>(i));
  const auto better = [&](int32_t a, int32_t b) {
    return next_[a].total != next_[b].total ? next_[a].total > next_[b].total : next_[a].order < next_[b].order;
  };
  const auto beam = static_cast<size_t>(options_.beam);
  if (options_.per_node) {
    std::sort(chosen_.begin(), chosen_.end(), better);
    std::unordered_map<int32_t, int> counts;
    std::erase_if(chosen_, [&](int32_t i) { return ++counts[next_[i].node] > options_.per_node; });
    if (chosen_.size() > beam) chosen_.resize(beam);
  } else if (chosen_.size() > beam) {
    std::nth_element(chosen_.begin(), chosen_.begin() + (beam - 1), chosen_.end(), better);
    chosen_.resize(beam);
  }
  ranks_.clear();
  for (const int32_t i : chosen_) ranks_.push_back(static_cast<uint64_t>(next_[i].order) << 32 | static_cast<uint32_t>(i));
  std::sort(ranks_.begin(), ranks_.end());
  slots_.clear();
  for (const uint64_t rank : ranks_) slots_.push_back(next_[static_cast<uint32_t>(rank)]);
}

void DictionarySearch::write_records() {
  for (Slot& slot : slots_) {
    slot.blank.fresh = false;
    if (!slot.label.fresh) continue;
    records_.push_back({slot.label.trace, label_of(slot.node), frame_ - 1, slot.label.end, slot.label.word});
    slot.label.trace = static_cast<int32_t>(records_.size()) - 1;
    slot.label.end = frame_;
    slot.label.fresh = false;
  }
}

// Removes the records that belong to no slot; the others keep their order.
void DictionarySearch::collect_garbage() {
  if (records_.size() < 2 * records_kept_ + kGarbage) return;
  std::vector<int32_t> moved(records_.size(), -1);
  const auto mark = [&](int32_t at) {
    for (; at >= 0 && moved[at] < 0; at = records_[at].previous) moved[at] = 0;
  };
  for (const Slot& slot : slots_) mark(slot.blank.trace), mark(slot.label.trace);
  int32_t kept = 0;
  for (size_t i = 0; i < records_.size(); ++i) {
    if (moved[i] < 0) continue;
    Record record = records_[i];
    if (record.previous >= 0) record.previous = moved[record.previous];
    moved[i] = kept;
    records_[kept++] = record;
  }
  records_.resize(kept);
  records_kept_ = kept;
  for (Slot& slot : slots_)
    for (Path* path : {&slot.blank, &slot.label})
      if (path->trace >= 0) path->trace = moved[path->trace];
}

DictionarySearch::WordPath DictionarySearch::trace_back(const Path& path, double score, bool complete) const {
  WordPath found{score, complete, {}, {}, {}, {}, {}};
  int32_t end = path.end;
  for (int32_t at = path.trace; at >= 0; at = records_[at].previous) {
    const Record& record = records_[at];
    found.labels.push_back(record.label);
    found.starts.push_back(record.start);
    found.ends.push_back(end);
    if (record.word != -1) {
      found.words.push_back(record.word);
      found.word_ends.push_back(static_cast<int32_t>(found.labels.size()) - 1);  // counted from the back until the loop ends
    }
    end = record.previous_end;
  }
  for (auto* one : {&found.labels, &found.starts, &found.ends, &found.words, &found.word_ends})
    std::reverse(one->begin(), one->end());
  const auto count = static_cast<int32_t>(found.labels.size());
  for (int32_t& word_end : found.word_ends) word_end = count - word_end;
  return found;
}

// Unknown words are distinguished by their labels.
bool DictionarySearch::same_words(const WordPath& a, const WordPath& b) {
  if (a.words != b.words) return false;
  for (size_t i = 0; i < a.words.size(); ++i) {
    if (a.words[i] != kUnknownWord) continue;
    const auto labels = [i](const WordPath& one) {
      const auto begin = one.labels.begin() + (i ? one.word_ends[i - 1] : 0);
      return std::vector<int32_t>(begin, one.labels.begin() + one.word_ends[i]);
    };
    if (labels(a) != labels(b)) return false;
  }
  return true;
}

std::vector<DictionarySearch::WordPath> DictionarySearch::best(int count) const {
  std::vector<std::pair<double, const Slot*>> ends;
  const auto collect = [&](bool complete) {
    for (const Slot& slot : slots_) {
      const bool at_end = slot.node == 0 || (slot.node >= ends_at() && slot.node < unknowns_at());
      if (at_end != complete) continue;
      double score = total_of(slot).score - look_ahead(slot.node);
      if (complete && lm_) score += options_.lm_weight * kLog10 * static_cast<double>(lm_->finish(slot.lm));
      ends.emplace_back(score, &slot);
    }
  };
  collect(true);
  const bool complete = !ends.empty();
  if (!complete) collect(false);
  std::stable_sort(ends.begin(), ends.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<WordPath> found;
  for (const auto& [score, slot] : ends) {
    WordPath one = trace_back(total_of(*slot), score, complete);
    const auto same = std::find_if(found.begin(), found.end(), [&](const WordPath& f) { return same_words(f, one); });
    if (same != found.end()) same->score = merged(same->score, score, options_.sum);
    else if (options_.sum || static_cast<int>(found.size()) < count) found.push_back(std::move(one));
  }
  std::stable_sort(found.begin(), found.end(), [](const WordPath& a, const WordPath& b) { return a.score > b.score; });
  if (static_cast<int>(found.size()) > count) found.resize(count);
  return found;
}

void feed_all(const std::vector<DictionarySearch*>& searches, const std::vector<Frames>& frames, int threads) {
  struct Context {
    const std::vector<DictionarySearch*>& searches;
    const std::vector<Frames>& frames;
    std::atomic<size_t> next{0};
  } context{searches, frames};
  const int useful = static_cast<int>(std::min<size_t>(searches.size(), threads));
  parallel(useful, [](void* data, int, int) {
    auto& shared = *static_cast<Context*>(data);
    for (size_t i; (i = shared.next.fetch_add(1)) < shared.searches.size();) shared.searches[i]->feed(shared.frames[i]);
  }, &context);
}

}  // namespace unrolled
