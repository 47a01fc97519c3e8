// Time-synchronous search for word sequences through a prefix tree, with a language model at word ends. All scores are
// natural logarithms. unrolled/search/ctc/dictionary_search.py is the reference in plain Python.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ctc/ctc.h"
#include "search/lexicon.h"
#include "search/search.h"
#include "search/word_model.h"

namespace unrolled {

struct DictionaryOptions {
  int labels = 0, blank = 0;
  bool doubles = false;       // equal labels may follow each other without a blank between them
  int separator = -1;         // the label between words, or none
  int beam = 100;             // slots kept after each frame, at most
  int per_node = 0;           // slots kept at one node of the tree, at most; 0: no limit
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
  std::vector<double> look_ahead;        // by node: the best unigram score of the words below it

  Dictionary(std::shared_ptr<const Lexicon> lexicon, std::shared_ptr<const WordModel> lm, const std::vector<std::string>& words);
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

  DictionarySearch(std::shared_ptr<const Dictionary> dictionary, const DictionaryOptions& options);
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
  // Hypotheses with the same future: the same node, and the same state of the language model. Node numbers below the
  // size of the tree are nodes of the tree. Then there is one for each label: the end of a word whose last label it is.
  // Higher numbers are nodes of `unknowns_`: words outside the lexicon, as far as they are spelt.
  struct Slot {
    int32_t node;
    uint32_t lm;
    int32_t history;
    int32_t order;  // position in time of its best path in this frame; it ranks equal totals
    Path blank, label;  // paths that end in a blank, paths that end in a label
    double total;
  };
  struct Record {
    int32_t previous, label, start, previous_end, word;
  };

  int32_t ends_at() const { return lexicon_->size(); }
  int32_t unknowns_at() const { return lexicon_->size() + options_.labels; }
  int32_t label_of(int32_t node) const;
  bool begins_word(int32_t node) const { return node == 0 || (options_.separator < 0 && node >= ends_at() && node < unknowns_at()); }

  // Two equal labels in a row need a blank between them, if there is a blank.
  bool needs_blank(int32_t label, int32_t last) const { return label == last && !options_.doubles; }

  void step(const float* x);
  void stay(const Slot& slot, const Path& total, const float* x);
  void move(const Slot& slot, const Path& total, const float* x);
  void move_in_tree(const Slot& slot, const Path& total, const float* x);
  void move_unknown(const Slot& slot, const Path& total, const float* x);
  void end_word(const Slot& slot, const Path& path, int32_t label, int32_t word, uint32_t lm_word, int32_t identity);
  void add(int32_t node, uint32_t lm, int32_t history, const Path& path, bool blank, bool single);
  bool hopeless(uint64_t hash, double score) const { return score < bar_ && !(staying_[hash % kStaying / 64] >> hash % 64 & 1); }
  void keep_best();
  void raise_bar(const float* x);
  void collect_scores(const float* x);
  void write_records();
  void collect_garbage();
  Path total_of(const Slot& slot) const;
  void merge(Path& into, const Path& path) const;
  double score_word(uint32_t state, uint32_t word, uint32_t& next);
  bool no_end_stays(int32_t label, uint32_t lm_word) const;
  void note_end(const Slot& slot);
  double look_ahead(int32_t node) const { return looks_ahead_ && node < ends_at() ? options_.lm_weight * dictionary_->look_ahead[node] : 0.0; }
  WordPath trace_back(const Path& path, double score, bool complete) const;
  static bool same_words(const WordPath& a, const WordPath& b);

  std::shared_ptr<const Dictionary> dictionary_;
  const Lexicon* lexicon_;
  const WordModel* lm_;
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
  std::vector<int32_t> unknown_in_tree_;  // the node of the lexicon with the same spelling, or -1
  std::vector<int64_t> child_stayed_;  // by node of `unknowns_`: the frame after the last one in which a child was a slot
  std::vector<uint8_t> unknown_ends_;  // by label: true if a slot at the end of an unknown word may exist
  static constexpr uint64_t kStaying = 1 << 14;
  std::vector<uint64_t> staying_ = std::vector<uint64_t>(kStaying / 64);  // a bit for the hash of each slot that is kept
  std::vector<uint64_t> ends_ = std::vector<uint64_t>(kStaying / 64);  // the same for label and word of the slots at word ends
  std::vector<uint8_t> any_end_;  // by label: true if one is kept whose state does not tell its word
  std::vector<double> scores_;
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
