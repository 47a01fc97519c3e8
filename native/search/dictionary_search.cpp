#include "search/dictionary_search.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <unordered_map>

#include "runtime/parallel.h"

namespace unrolled {
namespace {

constexpr size_t kCache = 1 << 15;
constexpr size_t kGarbage = 1 << 16;  // records; with more, the unused ones are removed


}  // namespace

Dictionary::Dictionary(std::shared_ptr<const Lexicon> given_lexicon, std::shared_ptr<const WordModel> given_lm,
                       const std::vector<std::string>& words)
    : lexicon(std::move(given_lexicon)), lm(std::move(given_lm)) {
  if (!lm) return;
  for (const std::string& word : words) lm_words.push_back(lm->find(word));
  const int32_t spellings = lexicon->spellings();
  spelling_best_.resize(2 * static_cast<size_t>(spellings));
  for (int32_t rank = 0; rank < spellings; ++rank) {
    float best = -std::numeric_limits<float>::infinity();
    for (const int32_t word : lexicon->words(rank)) best = std::max(best, lm->unigram(lm_words[word]));
    spelling_best_[spellings + rank] = best;
  }
  for (int32_t i = spellings - 1; i > 0; --i) spelling_best_[i] = std::max(spelling_best_[2 * i], spelling_best_[2 * i + 1]);

  constexpr int32_t unseen = -1, shared = -2;
  std::vector<int32_t> ranks(lexicon->size(), unseen);  // of nodes to which one beginning leads
  arc_best_.assign(lexicon->arc_count(), kShared);
  ranks[lexicon->root()] = 0;
  for (int32_t node = lexicon->root(); node >= 0; --node) {  // a node has a higher number than all behind it
    for (const Lexicon::Arc& arc : lexicon->arcs(node)) {
      const int32_t rank = ranks[node] == shared ? shared : ranks[node] + arc.skipped;
      if (rank != shared) arc_best_[lexicon->index(arc)] = best(rank, rank + lexicon->count(arc.target));
      ranks[arc.target] = ranks[arc.target] == unseen ? rank : shared;
    }
  }
}

// The best score of some spellings.
float Dictionary::best(int32_t first, int32_t end) const {
  float best = -std::numeric_limits<float>::infinity();
  for (first += lexicon->spellings(), end += lexicon->spellings(); first < end; first /= 2, end /= 2) {
    if (first % 2) best = std::max(best, spelling_best_[first++]);
    if (end % 2) best = std::max(best, spelling_best_[--end]);
  }
  return best;
}

size_t Dictionary::bytes() const {
  return lexicon->bytes() + lm_words.size() * sizeof(uint32_t) + (spelling_best_.size() + arc_best_.size()) * sizeof(float);
}

DictionarySearch::DictionarySearch(std::shared_ptr<const Dictionary> dictionary, const DictionaryOptions& options,
                                   std::shared_ptr<const Hotwords> hotwords)
    : dictionary_(std::move(dictionary)), lexicon_(dictionary_->lexicon.get()), lm_(dictionary_->lm.get()),
      hotwords_(std::move(hotwords)), options_(options), looks_ahead_(lm_ && options.look_ahead) {
  if (lm_) cache_.resize(kCache);
  Slot begin{{lexicon_->root(), 0, lm_ ? lm_->start() : 0, 0, options_.separator}, 0, {}, {}, 0.0};
  begin.blank.score = 0;
  if (hotwords_) begin.key.hot = hotwords_->start;
  slots_.push_back(begin);
  unknown_in_lexicon_.push_back(lexicon_->root());
  child_stayed_.push_back(0);
}

void DictionarySearch::feed(const Frames& frames) {
  for (int64_t t = 0; t < frames.count; ++t) step(frames.at(t));
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
  add(slot.key, path, true, false);
  if (slot.key.last < 0) return;
  if (slot.key.node == lexicon_->root()) {  // between words: separators, with or without blanks between them
    path = total;
    path.score += x[slot.key.last];
  } else {
    path = slot.label;
    path.score += x[slot.key.last];
    path.end = frame_ + 1;
  }
  add(slot.key, path, false, false);
}

// The slot gets a new label.
void DictionarySearch::move(const Slot& slot, const Path& total, const float* x) {
  const int32_t node = slot.key.node;
  if (at_end(node) && options_.separator >= 0) {
    Path path = total;
    const int32_t hot = hot_after(slot.key, options_.separator);
    path.score += x[options_.separator];
    path.score += hot_added(slot.key, hot);
    add({lexicon_->root(), 0, slot.key.lm, slot.key.history, options_.separator, 0, hot}, path, false, false);
    return;
  }
  if (node < unknowns_at()) move_in_lexicon(slot, total, x);
  if (options_.unknown_penalty > kNever && (begins_word(node) || node >= unknowns_at())) move_unknown(slot, total, x);
}

void DictionarySearch::move_in_lexicon(const Slot& slot, const Path& total, const float* x) {
  const bool begins = begins_word(slot.key.node);
  const double before = expected(slot.key.ahead);
  // the place can be reached only from this slot in this frame, or only the best of its paths counts
  const bool single = (!begins && !hotwords_) || !options_.sum;
  for (const Lexicon::Arc& arc : lexicon_->arcs(begins ? lexicon_->root() : slot.key.node)) {
    const auto label = static_cast<int32_t>(arc.label);
    const Path& from = needs_blank(label, slot.key.last) ? slot.blank : total;
    if (from.score == kNever) continue;
    const Key inside = behind(slot.key, arc);
    const double score = from.score + (x[label] - before) + hot_added(slot.key, inside.hot);
    const double longer = score + expected(inside.ahead);
    if (!arc.ends && single && hopeless(inside, longer)) continue;
    Path path = from;
    path.score = score;
    path.fresh = true;
    path.word = -1;
    const bool ends_may_stay = options_.sum || !lm_ || score + options_.word_bonus >= bar_;
    for (const int32_t word : arc.ends ? lexicon_->words(inside.rank) : std::span<const int32_t>()) {
      const uint32_t lm_word = lm_ ? dictionary_->lm_words[word] : 0;
      if (!ends_may_stay && no_end_stays(label, lm_word)) continue;
      end_word(slot, path, label, word, lm_word, word, inside.hot);
    }
    if (arc.goes_on) {
      path.score = longer;
      add(inside, path, false, single);
    }
  }
}

// The slot gets a label of a word outside the lexicon.
void DictionarySearch::move_unknown(const Slot& slot, const Path& total, const float* x) {
  const bool begins = begins_word(slot.key.node);
  const int32_t spelt = begins ? 0 : slot.key.node - unknowns_at();
  for (int32_t label = 0; label < options_.labels; ++label) {
    if (label == options_.blank || label == options_.separator) continue;
    Path path = needs_blank(label, slot.key.last) ? slot.blank : total;
    if (path.score == kNever) continue;
    const int32_t hot = hot_after(slot.key, label);
    path.score = path.score + (x[label] + (begins ? options_.unknown_penalty : 0.0)) + hot_added(slot.key, hot);
    path.fresh = true;
    path.word = -1;
    const double hope = path.score + std::max(options_.word_bonus, 0.0);
    if (!options_.sum && hope < bar_) {  // a new slot would not be kept; an existing one can still get this path
      if (child_stayed_[spelt] != frame_ + 1 && !unknown_ends_[label]) continue;
      if (unknowns_.find(spelt, label) < 0) continue;
    }
    const int32_t longer = unknowns_.child(spelt, label);
    const int32_t same = unknown_in_lexicon_[spelt];
    const Lexicon::Arc* arc = same < 0 ? nullptr : lexicon_->find(same, label);
    if (longer == static_cast<int32_t>(unknown_in_lexicon_.size())) {
      unknown_in_lexicon_.push_back(arc ? arc->target : -1);
      child_stayed_.push_back(0);
    }
    if (!arc || !arc->ends) end_word(slot, path, label, kUnknownWord, WordModel::kUnknown, -1 - longer, hot);
    add({unknowns_at() + longer, 0, slot.key.lm, slot.key.history, label, 0, hot}, path, false,
        (!begins && !hotwords_) || !options_.sum);
  }
}

// Ends the last word of a path. `identity` distinguishes words, unknown ones by their spelling.
void DictionarySearch::end_word(const Slot& slot, const Path& path, int32_t label, int32_t word, uint32_t lm_word,
                                int32_t identity, int32_t hot) {
  Path ended = path;
  ended.word = word;
  ended.score += options_.word_bonus;
  uint32_t next = 0;
  if (lm_) ended.score += options_.lm_weight * score_word(slot.key.lm, lm_word, next);
  const int32_t history = options_.recombine ? 0 : histories_.child(slot.key.history, identity);
  add({ends_at() + label, 0, next, history, label, 0, hot}, ended, false, !options_.sum);
}

double DictionarySearch::score_word(uint32_t state, uint32_t word, uint32_t& next) {
  const uint64_t key = packed(state, word);
  Cached& cached = cache_[scrambled(key) % kCache];
  if (cached.key != key) {
    cached.log10 = lm_->score(state, word, cached.next);
    cached.key = key;
  }
  next = cached.next;
  return static_cast<double>(cached.log10) * kLog10;
}

// Adds a path to its slot. No slot is made for a path that is below the bar and the only one to it (`single`).
void DictionarySearch::add(const Key& key, const Path& path, bool blank, bool single) {
  if (path.score == kNever) return;
  if (single && hopeless(key, path.score)) return;
  int32_t* place = table_.find(key.hash(), [&](int32_t i) { return next_[i].key == key; });
  if (*place < 0) {
    if (single && path.score < bar_) return;
    const auto made = static_cast<int32_t>(next_.size());
    next_.push_back({key, clock_++, {}, {}, kNever});
    table_.put(place, made);
    merge(blank ? next_[made].blank : next_[made].label, path);
    if (table_.full()) {
      table_.grow();
      for (int32_t i = 0; i <= made; ++i) table_.put(table_.find(next_[i].key.hash(), [](int32_t) { return false; }), i);
    }
    return;
  }
  // not by the time at which the slot was made: the worse path that made it may be left out
  if (path.score > std::max(next_[*place].blank.score, next_[*place].label.score)) next_[*place].order = clock_++;
  merge(blank ? next_[*place].blank : next_[*place].label, path);
}

// A lower bound of the score of the worst slot that is kept.
//
// Every slot has its score from itself in the last frame, from the place before it, or from both. So the best 2·beam
// of these scores belong to at least `beam` slots.
void DictionarySearch::raise_bar(const float* x) {
  any_end_.assign(options_.labels, 0);
  if (next_.empty()) return;
  std::fill(staying_.begin(), staying_.end(), 0);
  std::fill(ends_.begin(), ends_.end(), 0);
  scores_.clear();
  for (const Slot& slot : next_) {
    const uint64_t hash = slot.key.hash();
    staying_[hash % kStaying / 64] |= uint64_t{1} << hash % 64;
    if (slot.key.node >= unknowns_at()) child_stayed_[unknowns_[slot.key.node - unknowns_at()].parent] = frame_ + 1;
    else if (slot.key.node >= ends_at() && lm_) note_end(slot);
    else if (slot.key.node >= ends_at()) any_end_[slot.key.last] = 1;
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
  const uint32_t word = lm_->last_word(slot.key.lm);
  if (word == WordModel::kForgotten) {
    any_end_[slot.key.last] = 1;
    return;
  }
  const uint64_t hash = scrambled(packed(slot.key.last, word));
  ends_[hash % kStaying / 64] |= uint64_t{1} << hash % 64;
}

bool DictionarySearch::no_end_stays(int32_t label, uint32_t lm_word) const {
  const uint64_t hash = scrambled(packed(label, lm_word));
  return !any_end_[label] && !(ends_[hash % kStaying / 64] >> hash % 64 & 1);
}

// Adds the paths to places inside words that are above the bar.
void DictionarySearch::collect_scores(const float* x) {
  const double most = hotwords_ ? hotwords_->most : 0.0;
  if (hotwords_) std::fill(counted_.begin(), counted_.end(), 0);
  for (const Slot& slot : slots_) {
    const int32_t node = slot.key.node;
    if (node >= ends_at() || (node == lexicon_->root() && options_.separator < 0)) continue;
    const double total = merged(slot.blank.score, slot.label.score, options_.sum);
    const double before = expected(slot.key.ahead);
    for (const Lexicon::Arc& arc : lexicon_->arcs(node)) {
      if (!arc.goes_on) continue;
      const double from = needs_blank(arc.label, slot.key.last) ? slot.blank.score : total;
      double score = from + (x[arc.label] - before);
      if (score + most <= bar_) continue;
      const Key inside = behind(slot.key, arc);
      score = score + hot_added(slot.key, inside.hot) + expected(inside.ahead);  // the look-ahead is at most 0
      if (score > bar_ && (!hotwords_ || first_to(inside))) scores_.push_back(score);
    }
  }
}

// True for the first path to a place in a frame: two that differ in hotwords may come to one.
bool DictionarySearch::first_to(const Key& key) {
  const uint64_t hash = key.hash(), bit = uint64_t{1} << hash % 64;
  uint64_t& word = counted_[hash % kStaying / 64];
  const bool first = !(word & bit);
  word |= bit;
  return first;
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
    std::unordered_map<uint64_t, int> counts;
    std::erase_if(chosen_, [&](int32_t i) { return ++counts[packed(next_[i].key.node, next_[i].key.rank)] > options_.per_node; });
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
    records_.push_back({slot.label.trace, slot.key.last, frame_ - 1, slot.label.end, slot.label.word});
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
      const int32_t node = slot.key.node;
      if ((node == lexicon_->root() || at_end(node)) != complete) continue;
      double score = total_of(slot).score - expected(slot.key.ahead);
      if (complete && lm_) score += options_.lm_weight * (static_cast<double>(lm_->finish(slot.key.lm)) * kLog10);
      if (hotwords_) score += hotwords_->final[slot.key.hot];
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
