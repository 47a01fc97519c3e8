#include "ngram/arpa.h"

#include <charconv>
#include <cmath>
#include <algorithm>

namespace unrolled {
namespace {

constexpr size_t kPiece = size_t{1} << 20;  // bytes
constexpr double kLargest = 1000;            // of a log10 that is meant

bool is_blank(char c) { return c == ' ' || c == '\t'; }

std::string_view trimmed(std::string_view line) {
  while (!line.empty() && (is_blank(line.back()) || line.back() == '\r')) line.remove_suffix(1);
  while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
  return line;
}

void split(std::string_view line, std::vector<std::string_view>& fields) {
  fields.clear();
  for (size_t at = 0; at < line.size();) {
    size_t end = at;
    while (end < line.size() && !is_blank(line[end])) ++end;
    if (end > at) fields.push_back(line.substr(at, end - at));
    at = end + 1;
  }
}

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

std::string joined(const std::vector<std::string_view>& fields, size_t first, size_t count) {
  std::string text;
  for (size_t i = first; i < first + count; ++i) text += (i > first ? " " : "") + std::string(fields[i]);
  return text;
}

bool parse(std::string_view text, float& number) { return parse_float(text, number); }

template <class Number>
bool parse(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

void append(std::string& text, float value) {
  char digits[64];
  text.append(digits, std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed).ptr);
}

}  // namespace

void append_line(std::string& text, float prob, const Words& words, const uint32_t* ngram, int order) {
  append(text, prob);
  for (int i = 0; i < order; ++i) text.append(i ? " " : "\t").append(words[ngram[i]]);
}

void append_backoff(std::string& text, float backoff) {
  text += '\t';
  append(text, backoff);
}

void ArpaReader::feed(std::string_view bytes) {
  lines_.feed(bytes, [this](std::string_view line) { read(trimmed(line)); });
}

std::shared_ptr<NGramModel> ArpaReader::finish() {
  lines_.finish([this](std::string_view line) { read(trimmed(line)); });
  if (place_ == Place::before) throw wrong("The file has no line \\data\\: it is not an ARPA file.");
  if (place_ != Place::after) throw wrong("The file ends before \\end\\.", "It was cut off: get the whole of it.");
  for (const char* needed : {"<s>", "</s>"})
    if (model_->words().find(needed) == Words::kNone)
      throw wrong(std::string("The model has no unigram ") + needed + ".", "Every ARPA file needs <s> and </s>.");
  model_->finish_building();
  return std::move(model_);
}

void ArpaReader::read(std::string_view line) {
  if (place_ == Place::before) {
    if (line == "\\data\\") place_ = Place::counts;
    return;
  }
  if (line.empty()) return;
  if (place_ == Place::after) throw wrong("There is text after \\end\\.", "Two files may have been joined: give one model.");
  if (line[0] == '\\' && !is_blank(line.back()) && (line == "\\end\\" || line.ends_with("-grams:")))
    return begin_section(line);
  if (place_ == Place::counts) return read_count(line);
  read_ngram(line);
}

void ArpaReader::read_count(std::string_view line) {
  const size_t equals = line.find('=');
  unsigned long long order = 0, count = 0;
  if (!line.starts_with("ngram ") || equals == std::string_view::npos ||
      !parse(trimmed(line.substr(6, equals - 6)), order) || !parse(trimmed(line.substr(equals + 1)), count))
    throw wrong("Got " + quoted(line) + ".", "Expected a line such as: ngram 2=1000");
  if (order != counts_.size() + 1 || order > NGramModel::kMostOrder)
    throw wrong("Got the count of " + std::to_string(order) + "-grams, expected that of " +
                std::to_string(counts_.size() + 1) + "-grams.");
  counts_.push_back(count);
}

void ArpaReader::begin_section(std::string_view line) {
  if (order_ == 0) {
    if (counts_.empty()) throw wrong("There are no counts after \\data\\.", "Expected a line such as: ngram 1=1000");
    model_ = std::make_shared<NGramModel>(static_cast<int>(counts_.size()));
    size_t all = 2;
    for (size_t count : counts_) all += std::min(count, most_);
    model_->reserve(std::min(all, most_));
  } else {
    check_count();
  }
  const auto orders = static_cast<int>(counts_.size());
  const std::string expected = order_ == orders ? "\\end\\" : "\\" + std::to_string(order_ + 1) + "-grams:";
  if (line != expected) throw wrong("Got " + std::string(line) + ", expected " + expected + ".");
  place_ = order_ == orders ? Place::after : Place::ngrams;
  ++order_;
  found_ = 0;
}

void ArpaReader::check_count() const {
  const size_t expected = counts_[order_ - 1];
  if (found_ != expected)
    throw wrong("There are " + std::to_string(found_) + " " + std::to_string(order_) + "-grams, the header says " +
                std::to_string(expected) + ".", "The file was cut or changed: get the whole of it.");
}

float ArpaReader::number(std::string_view text, const char* what) const {
  double value = 0;
  const bool sign = text.size() > 1 && text[0] == '+' && text[1] != '-';
  if (!parse(sign ? text.substr(1) : text, value) || !std::isfinite(value))
    throw wrong("Got " + quoted(text) + " as " + what + ".", "Expected a number.");
  if (std::abs(value) > kLargest)
    throw wrong("Got " + quoted(text) + " as " + what + ".", "Expected log10 of a probability; -99 stands for none.");
  return static_cast<float>(value);
}

void ArpaReader::read_ngram(std::string_view line) {
  split(line, fields_);
  const size_t count = order_, got = fields_.size();
  if (got != count + 1 && got != count + 2)
    throw wrong("Got " + std::to_string(got) + " fields in a line of the " + std::to_string(order_) + "-grams.",
                "Expected a log10 probability, " + std::to_string(order_) + (order_ == 1 ? " word" : " words") +
                    ", and a back-off or none.");
  const float prob = number(fields_[0], "a log10 probability");
  if (prob > 0) throw wrong("The log10 probability " + std::string(fields_[0]) + " is above 0.");
  const float backoff = got == count + 2 ? number(fields_[count + 1], "a back-off") : 0;
  if (backoff != 0 && count == counts_.size())
    throw wrong("An n-gram of the highest order has the back-off " + std::string(fields_[count + 1]) + ".",
                "Nothing is longer: leave it out.");
  ++found_;
  bool is_new;
  if (order_ == 1) {
    is_new = model_->add_unigram(fields_[1], prob, backoff);
    if (fields_[1] != "<s>") unigram_sum_ += std::pow(10.0, prob);
  } else {
    words_.clear();
    for (size_t i = 1; i <= count; ++i) {
      const uint32_t word = model_->find(fields_[i]);
      if (word == NGramModel::kUnknown && !(model_->has_unknown() && (fields_[i] == "<unk>" || fields_[i] == "<UNK>")))
        throw wrong("The word " + quoted(fields_[i]) + " has no unigram.");
      words_.push_back(word);
    }
    const uint32_t before = model_->node_count();
    is_new = model_->add(words_.data(), order_, prob, backoff);
    if (model_->node_count() > before + 1)
      throw wrong("The context " + quoted(joined(fields_, 1, count - 1)) + " has no " + std::to_string(order_ - 1) + "-gram.",
                  "Every context of an n-gram is an n-gram itself: the file was cut or changed.");
  }
  if (!is_new)
    throw wrong("The " + std::to_string(order_) + "-gram " + quoted(joined(fields_, 1, count)) + " stands here again.",
                "Leave one of them out.");
}

std::string ArpaWriter::next() {
  std::string text;
  const int orders = model_->order();
  if (order_ == 0) {
    text = "\\data\\\n";
    for (int order = 1; order <= orders; ++order)
      text += "ngram " + std::to_string(order) + "=" + std::to_string(model_->count(order)) + "\n";
  }
  uint32_t words[NGramModel::kMostOrder];
  while (order_ <= orders && text.size() < kPiece) {
    if (order_ == 0 || node_ == model_->node_count()) {
      ++order_;
      node_ = 1;
      text += order_ > orders ? "\n\\end\\\n" : "\n\\" + std::to_string(order_) + "-grams:\n";
      continue;
    }
    const uint32_t node = node_++;
    if (model_->length(node) != order_ || model_->is_blank(node)) continue;
    model_->words_of(node, words);
    append_line(text, model_->prob(node), model_->words(), words, order_);
    if (order_ < orders) append_backoff(text, model_->backoff(node));
    text += '\n';
  }
  return text;
}

}  // namespace unrolled
