// Modified Kneser-Ney estimates of n-gram models from text, in bounded memory (Chen and Goodman 1998; sorted as in Heafield
// et al. 2013). unrolled/search/ngram/estimate.py says the same with dictionaries.
//
// N-grams are counted and sorted by their last word, then the one before it, and so on ("suffix order"): all n-grams that
// end alike stand together, and one pass gives the counts of every order. Sorted by context, another pass gives discounted
// probabilities and what each context has left; back in suffix order, each is joined to the n-gram it ends in.
// Inside, the words of an n-gram therefore stand from last to first.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ngram/lines.h"
#include "ngram/ngram.h"
#include "ngram/records.h"

namespace unrolled {

class KneserNey {
 public:
  // N-grams counted `prune[k - 1]` times or less are left out, of each order k; `memory` in bytes, for all but the
  // vocabulary and the n-grams of one context. `threads` sort, which is most of the work.
  KneserNey(int order, std::vector<uint32_t> prune, size_t memory, std::string folder, int threads);

  // The next bytes of a text, cut anywhere; a sentence on each line.
  void feed(std::string_view bytes);

  // After all text, in place of what follows: its words, each with a line end, in the order of their numbers; then pieces
  // of its counts, the last one empty. Each n-gram of the highest order is 32-bit numbers: words from last to first, count.
  std::string shard_words();
  std::string next_counts();

  // The same of the next part of a text, whose counts are added as if the part itself had been fed.
  void begin_shard(std::string_view words, uint64_t sentences, uint64_t tokens, uint32_t longest);
  void add_counts(std::string_view records);

  // After all text: how many n-grams of each order have the adjusted counts 1, 2, 3 and 4, and how many there are.
  std::vector<std::vector<uint64_t>> adjust();

  // With the discounts D1, D2 and D3+ of each order.
  void estimate(const std::vector<std::vector<double>>& discounts);

  // The result, once, either way: pieces of an ARPA file, the last one empty, or a model.
  std::string next_piece();
  std::shared_ptr<NGramModel> model();

  std::vector<size_t> counts() const {  // n-grams of each order
    std::vector<size_t> counts;
    for (int k = 1; k <= order_; ++k) counts.push_back(finished_[k]->size());
    return counts;
  }
  uint64_t sentences() const { return sentences_; }
  uint64_t tokens() const { return tokens_; }  // without ends
  uint32_t longest() const { return longest_; }  // words of a sentence

 private:
  static constexpr uint32_t kBegin = 1, kEnd = 2;  // after <unk>
  static constexpr uint32_t kPruned = 1u << 31;
  static constexpr uint64_t kMostWords = kPruned - 1;

  void read(std::string_view line);
  void count(const std::vector<uint32_t>& sentence);
  void check_size() const;
  void emit(int length, const uint32_t* words, uint32_t adjusted, uint32_t actual);
  void discount(int length, const std::vector<double>& discounts);
  void discount_unigrams(const std::vector<double>& discounts);
  void continue_from(int length, const uint32_t* words, double prob);
  void output(int length, const uint32_t* words, double prob);
  double left_by(int length, const uint32_t* words);
  size_t share(int length) const;

  const int order_;
  const std::vector<uint32_t> prune_;
  const size_t memory_;
  const std::string folder_;
  const int threads_;

  Words words_;
  Lines lines_;
  uint64_t sentences_ = 0, tokens_ = 0;
  uint32_t longest_ = 0;
  std::vector<uint32_t> sentence_;
  std::vector<uint32_t> numbers_;  // here, of the words of the shard that is added
  uint64_t added_ = 0;             // counts of its n-grams

  // By order, from 1; 0 is not used.
  std::unique_ptr<Sorter> counted_;                    // words, count: of the highest order, in suffix order
  std::vector<std::unique_ptr<Sorter>> by_context_;    // words in the order of sorting, count
  std::vector<std::unique_ptr<Sorter>> discounted_;    // words, probability, left over by the context; in suffix order
  std::vector<std::unique_ptr<Spool>> left_;           // contexts of this length, left over; in suffix order
  std::vector<std::unique_ptr<Spool>> finished_;       // words from first to last, log10 probability, back-off
  std::vector<std::vector<uint64_t>> counts_of_counts_;
  std::vector<const uint32_t*> heads_, left_heads_;
  std::vector<uint32_t> unigrams_;  // adjusted counts
  std::vector<double> unigram_probs_;

  int writing_ = 0;  // the order that next_piece is at
};

}  // namespace unrolled
