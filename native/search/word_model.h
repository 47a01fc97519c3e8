// A language model of words, as the dictionary search sees it. States are numbers: equal ones have equal futures.
#pragma once

#include <cmath>
#include <memory>
#include <string_view>

#include "ngram/ngram.h"

namespace unrolled {

class WordModel {
 public:
  static constexpr uint32_t kUnknown = 0;      // the number of every word that the model does not have
  static constexpr uint32_t kForgotten = ~0u;  // see last_word

  virtual ~WordModel() = default;
  virtual uint32_t find(std::string_view word) const = 0;  // the number of a word
  virtual uint32_t start() const = 0;                      // the state at the beginning of a sentence
  virtual float score(uint32_t state, uint32_t word, uint32_t& next) const = 0;  // log10 p(word | state)
  virtual float finish(uint32_t state) const = 0;                                // log10 p of the sentence's end
  virtual float unigram(uint32_t word) const = 0;                                // log10 p of a word, for look-ahead
  // The last word of a state; kForgotten if states after different words are the same.
  virtual uint32_t last_word(uint32_t state) const = 0;
};

class NGramWordModel final : public WordModel {
 public:
  explicit NGramWordModel(std::shared_ptr<const NGramModel> model) : model_(std::move(model)) {}
  uint32_t find(std::string_view word) const override { return model_->find(word); }
  uint32_t start() const override { return model_->start().node; }
  float score(uint32_t state, uint32_t word, uint32_t& next) const override {
    NGramState after;
    const float log10 = model_->score_log10({state}, word, after);
    next = after.node;
    return log10;
  }
  float finish(uint32_t state) const override {
    uint32_t next;
    return score(state, model_->end_word() == Words::kNone ? NGramModel::kUnknown : model_->end_word(), next);
  }
  float unigram(uint32_t word) const override {
    uint32_t next;
    return score(0, word, next);
  }
  uint32_t last_word(uint32_t state) const override { return model_->last_word(state); }

 private:
  std::shared_ptr<const NGramModel> model_;
};

// A zero-gram: every word, and the end of a sentence, is one of `words` that are equally likely.
class UniformWordModel final : public WordModel {
 public:
  explicit UniformWordModel(int64_t words) : log10_(-std::log10(static_cast<float>(words))) {}
  uint32_t find(std::string_view) const override { return kUnknown; }
  uint32_t start() const override { return 0; }
  float score(uint32_t, uint32_t, uint32_t& next) const override {
    next = 0;
    return log10_;
  }
  float finish(uint32_t) const override { return log10_; }
  float unigram(uint32_t) const override { return log10_; }
  uint32_t last_word(uint32_t) const override { return kForgotten; }

 private:
  float log10_;
};

}  // namespace unrolled
