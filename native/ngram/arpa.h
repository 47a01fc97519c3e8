// ARPA files, the text form of n-gram models. Python opens and unpacks the file, these turn its bytes into a model and back.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "ngram/lines.h"
#include "ngram/ngram.h"

namespace unrolled {

// A line that is not as it should be: its number, what is wrong and what to do, for Python to name the file.
struct ArpaError : std::runtime_error {
  ArpaError(size_t line, const std::string& problem, const std::string& fix = "")
      : std::runtime_error(std::to_string(line) + "\n" + problem + "\n" + fix) {}
};

class ArpaReader {
 public:
  // `most` n-grams are made room for at once, whatever the header says.
  explicit ArpaReader(size_t most) : most_(most) {}
  // The next bytes of the file, cut anywhere.
  void feed(std::string_view bytes);
  // The model, once all has been fed.
  std::shared_ptr<NGramModel> finish();
  // Of the unigrams, <s> apart, which nothing predicts.
  double unigram_sum() const { return unigram_sum_; }

 private:
  enum class Place { before, counts, ngrams, after };

  void read(std::string_view line);
  void read_count(std::string_view line);
  void begin_section(std::string_view line);
  void read_ngram(std::string_view line);
  void check_count() const;
  float number(std::string_view text, const char* what) const;
  ArpaError wrong(const std::string& problem, const std::string& fix = "") const { return {lines_.number(), problem, fix}; }

  const size_t most_;
  Place place_ = Place::before;
  Lines lines_;
  std::vector<size_t> counts_;
  int order_ = 0;     // of the section
  size_t found_ = 0;  // n-grams of the section
  double unigram_sum_ = 0;
  std::vector<std::string_view> fields_;
  std::vector<uint32_t> words_;
  std::shared_ptr<NGramModel> model_;
};

// A line of a file, without its end, and the back-off that all but the highest order have.
void append_line(std::string& text, float prob, const Words& words, const uint32_t* ngram, int order);
void append_backoff(std::string& text, float backoff);

// The file of a model, piece by piece.
class ArpaWriter {
 public:
  explicit ArpaWriter(std::shared_ptr<const NGramModel> model) : model_(std::move(model)) {}
  // The next piece; empty after the last.
  std::string next();

 private:
  std::shared_ptr<const NGramModel> model_;
  int order_ = 0;
  uint32_t node_ = 0;
};

}  // namespace unrolled
