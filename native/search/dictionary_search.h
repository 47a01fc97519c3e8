// Time-synchronous search for word sequences through the graph of a lexicon, with a language model at word ends. All
// scores are natural logarithms. unrolled/search/ctc/dictionary_search.py is the reference in plain Python.
//
// Equal totals are ranked by the time at which their best paths came in the frame: first slots that stay, then moves, slots
// in their order, labels in their order, words of a spelling in the order of the lexicon. Of equal paths the first is kept.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ctc/ctc.h"
#include "search/hotwords.h"
#include "search/lexicon.h"
#include "search/search.h"
#include "search/word_model.h"

namespace unrolled {

constexpr double kLog10 = 2.302585092994045684;

struct DictionaryOptions {
  int labels = 0, blank = 0;
  bool doubles = false;       // equal labels may follow each other without a blank between them
  int separator = -1;         // the label between words, or none
  int beam = 100;             // slots kept after each frame, at most
  int per_node = 0;           // slots kept at one place of the lexicon, at most; 0: no limit
  double margin = 1e30;       // a slot may score this much less than the best one
  bool sum = false;           // where paths merge: their sum; false: the best one
  bool recombine = true;      // merge histories with the same state of the language model
  bool look_ahead = true;     // inside a word, count the best unigram score of the words still possible
  double lm_weight = 0, word_bonus = 0;
  double unknown_penalty = kNever;  // added to the score of a word outside the lexicon; −infinity: no such words
};

// A lexicon with the scores of its words by a language model. Searches with the same two share it.
struct Dictionary {
  std::shared_ptr<const Lexicon> lexicon;
  std::shared_ptr<const WordModel> lm;   // or none
  std::vector<uint32_t> lm_words;        // the model's number for each word of the lexicon

  Dictionary(std::shared_ptr<const Lexicon> lexicon, std::shared_ptr<const WordModel> lm, const std::vector<std::string>& words);
  // The best unigram score, log10, of the words behind an arc; `rank` is that of the place behind it.
  float look_ahead(const Lexicon::Arc& arc, int32_t rank) const {
    const float known = arc_best_[lexicon->index(arc)];
    return known == kShared ? best(rank, rank + lexicon->count(arc.target)) : known;
  }
  size_t bytes() const;  // without the language model

 private:
  static constexpr float kShared = 1;  // above every log-probability
  float best(int32_t first, int32_t end) const;

  std::vector<float> spelling_best_;  // a binary tree: inner nodes, then a leaf for each spelling
  std::vector<float> arc_best_;       // by arc; kShared: several beginnings lead to it
};

class DictionarySearch {
 public:
  static constexpr int32_t kUnknownWord = -2;

  struct WordPath {
    double score;
    bool complete;                            // false: the frames end inside a word
    std::vector<int32_t> labels, starts, ends;  // for each label, its first frame and the frame after its last
    std::vector<int32_t> words, word_ends;    // a word, or kUnknownWord; the number of labels up to its end
  };

  DictionarySearch(std::shared_ptr<const Dictionary> dictionary, const DictionaryOptions& options,
                   std::shared_ptr<const Hotwords> hotwords);
  void feed(const Frames& frames);
  // The best paths, if the frames ended here.
  std::vector<WordPath> best(int count) const;

 private:
  // The best path to a slot, or the sum of several. `end` is the frame after the last frame of the last label.
  struct Path {
    double score = kNever;
    int32_t trace = -1, end = 0, word = -1;
    bool fresh = false;  // it got a new label in this frame; its record is written if the slot is kept
  };
  // Hypotheses with the same future have the same key: the same place, and the same states of the language model and
  // of the hotwords. Node numbers below the size of the lexicon's graph are its nodes, with a rank. Then there is one for
  // each label: the end of a word whose last label it is. Higher numbers are nodes of `unknowns_`: words outside the
  // lexicon, as far as they are spelt. The rank of these is 0.
  struct Key {
    int32_t node, rank;
    uint32_t lm;
    int32_t history;
    int32_t last = -1;  // its last label; at the beginning of a word, the separator
    float ahead = 0;    // log10: the best unigram score of the words that begin so
    int32_t hot = 0;    // the state of the hotwords
    // equal places have equal labels behind them, and the same look-ahead
    bool operator==(const Key& other) const {
      return node == other.node && rank == other.rank && lm == other.lm && history == other.history && hot == other.hot;
    }
    uint64_t hash() const {
      const uint64_t more = packed(history, rank) + static_cast<uint64_t>(hot) * 0x9E3779B97F4A7C15u;
      return scrambled(packed(lm, node) ^ more * 0xD6E8FEB86659FD93u);
    }
  };
  struct Slot {
    Key key;
    int32_t order;  // position in time of its best path in this frame; it ranks equal totals
    Path blank, label;  // paths that end in a blank, paths that end in a label
    double total;
  };
  struct Record {
    int32_t previous, label, start, previous_end, word;
  };

  int32_t ends_at() const { return lexicon_->size(); }
  int32_t unknowns_at() const { return lexicon_->size() + options_.labels; }
  bool at_end(int32_t node) const { return node >= ends_at() && node < unknowns_at(); }
  bool begins_word(int32_t node) const { return node == lexicon_->root() || (options_.separator < 0 && at_end(node)); }

  // Two equal labels in a row need a blank between them, if there is a blank.
  bool needs_blank(int32_t label, int32_t last) const { return label == last && !options_.doubles; }

  void step(const float* x);
  void stay(const Slot& slot, const Path& total, const float* x);
  void move(const Slot& slot, const Path& total, const float* x);
  void move_in_lexicon(const Slot& slot, const Path& total, const float* x);
  void move_unknown(const Slot& slot, const Path& total, const float* x);
  void end_word(const Slot& slot, const Path& path, int32_t label, int32_t word, uint32_t lm_word, int32_t identity,
                int32_t hot);
  void add(const Key& key, const Path& path, bool blank, bool single);
  // True if no slot with this key exists yet and its score would be below the bar.
  bool hopeless(const Key& key, double score) const {
    if (score >= bar_) return false;
    const uint64_t hash = key.hash();
    return !(staying_[hash % kStaying / 64] >> hash % 64 & 1);
  }
  void keep_best();
  void raise_bar(const float* x);
  void collect_scores(const float* x);
  bool first_to(const Key& key);
  void write_records();
  void collect_garbage();
  Path total_of(const Slot& slot) const;
  void merge(Path& into, const Path& path) const;
  double score_word(uint32_t state, uint32_t word, uint32_t& next);
  bool no_end_stays(int32_t label, uint32_t lm_word) const;
  void note_end(const Slot& slot);
  double expected(float ahead) const { return options_.lm_weight * (static_cast<double>(ahead) * kLog10); }
  // The key of the place behind an arc.
  Key behind(const Key& key, const Lexicon::Arc& arc) const {
    const int32_t rank = key.rank + arc.skipped;
    const float ahead = looks_ahead_ && arc.goes_on ? dictionary_->look_ahead(arc, rank) : 0;
    return {arc.target, rank, key.lm, key.history, static_cast<int32_t>(arc.label), ahead, hot_after(key, arc.label)};
  }
  int32_t hot_after(const Key& key, int32_t label) const { return hotwords_ ? hotwords_->next(key.hot, label) : 0; }
  double hot_added(const Key& key, int32_t after) const { return hotwords_ ? hotwords_->added(key.hot, after) : 0.0; }
  WordPath trace_back(const Path& path, double score, bool complete) const;
  static bool same_words(const WordPath& a, const WordPath& b);

  std::shared_ptr<const Dictionary> dictionary_;
  const Lexicon* lexicon_;
  const WordModel* lm_;
  std::shared_ptr<const Hotwords> hotwords_;  // or none
  DictionaryOptions options_;
  bool looks_ahead_;
  std::vector<Slot> slots_, next_;
  Table table_;
  double bar_ = kNever;
  int32_t clock_ = 0;  // counts paths that became the best of their slot
  int32_t frame_ = 0;
  std::vector<Record> records_;
  size_t records_kept_ = 0;
  GrowingTree histories_;  // of word sequences, if histories are not merged
  GrowingTree unknowns_;   // of the labels of unknown words
  std::vector<int32_t> unknown_in_lexicon_;  // the node of the lexicon with the same spelling, or -1
  std::vector<int64_t> child_stayed_;  // by node of `unknowns_`: the frame after the last one in which a child was a slot
  std::vector<uint8_t> unknown_ends_;  // by label: true if a slot at the end of an unknown word may exist
  static constexpr uint64_t kStaying = 1 << 14;
  std::vector<uint64_t> staying_ = std::vector<uint64_t>(kStaying / 64);  // a bit for the hash of each slot that is kept
  std::vector<uint64_t> ends_ = std::vector<uint64_t>(kStaying / 64);  // the same for label and word of the slots at word ends
  std::vector<uint8_t> any_end_;  // by label: true if one is kept whose state does not tell its word
  std::vector<double> scores_;
  std::vector<uint64_t> counted_ = std::vector<uint64_t>(kStaying / 64);  // hashes of the places that collect_scores reached
  std::vector<int32_t> chosen_;
  std::vector<uint64_t> ranks_;  // order and index of the chosen slots
  struct Cached {
    uint64_t key = ~uint64_t{0};
    float log10 = 0;
    uint32_t next = 0;
  };
  std::vector<Cached> cache_;
};

// Feeds each search its frames, several searches at a time.
void feed_all(const std::vector<DictionarySearch*>& searches, const std::vector<Frames>& frames, int threads);

}  // namespace unrolled
