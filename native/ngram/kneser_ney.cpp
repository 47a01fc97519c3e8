#include "ngram/kneser_ney.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "ngram/arpa.h"

namespace unrolled {
namespace {

constexpr size_t kPiece = size_t{1} << 20;  // bytes

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

uint32_t bits(double value) { return std::bit_cast<uint32_t>(static_cast<float>(value)); }
float number(uint32_t bits) { return std::bit_cast<float>(bits); }

}  // namespace

KneserNey::KneserNey(int order, std::vector<uint32_t> prune, size_t memory, std::string folder, int threads)
    : order_(order), prune_(std::move(prune)), memory_(memory), folder_(std::move(folder)), threads_(threads), by_context_(order + 1),
      discounted_(order + 1), left_(order + 1), finished_(order + 1),
      counts_of_counts_(order + 1, std::vector<uint64_t>(6)), heads_(order + 2), left_heads_(order + 1) {
  if (order < 1 || order > NGramModel::kMostOrder || prune_.size() != static_cast<size_t>(order))
    throw std::invalid_argument("an order from 1 to 255, and a threshold for each");
  for (const char* special : {"<unk>", "<s>", "</s>"}) words_.add(special);
  counted_ = std::make_unique<Sorter>(order + 1, order, true, memory_ / 2, folder_, threads_);
}

// What sorting one order may take: a quarter of the memory for the highest, another for all others. Two such sorts of
// each order are there at once at the most, or one and the counts.
size_t KneserNey::share(int length) const { return memory_ / 4 / (length == order_ ? 1 : order_ - 1); }

void KneserNey::feed(std::string_view bytes) {
  lines_.feed(bytes, [this](std::string_view line) { read(line); });
}

void KneserNey::read(std::string_view line) {
  sentence_.clear();
  for (size_t at = 0; at < line.size();) {
    size_t end = at;
    while (end < line.size() && !is_blank(line[end])) ++end;
    if (end > at) sentence_.push_back(words_.add(line.substr(at, end - at)));
    at = end + 1;
  }
  if (!sentence_.empty()) count(sentence_);
}

void KneserNey::count(const std::vector<uint32_t>& sentence) {
  ++sentences_;
  tokens_ += sentence.size();
  check_size();
  longest_ = std::max(longest_, static_cast<uint32_t>(sentence.size()));
  std::vector<uint32_t> record(order_ + 1, kBegin);
  record[order_] = 1;
  for (size_t i = 0; i <= sentence.size(); ++i) {
    std::copy_backward(record.begin(), record.begin() + order_ - 1, record.begin() + order_);
    record[0] = i < sentence.size() ? sentence[i] : kEnd;
    counted_->add(record.data());
  }
}

void KneserNey::check_size() const {
  if (tokens_ + sentences_ > kMostWords)
    throw ArpaError(lines_.number(), "There are more than 2,147,483,647 words.", "Use less text.");
}

std::string KneserNey::shard_words() {
  lines_.finish([this](std::string_view line) { read(line); });
  std::string text;
  for (uint32_t word = kEnd + 1; word < words_.size(); ++word) {
    text += words_[word];
    text += '\n';
  }
  return text;
}

std::string KneserNey::next_counts() {
  std::string bytes;
  const size_t size = (order_ + 1) * sizeof(uint32_t);
  while (bytes.size() + size <= kPiece) {
    const uint32_t* record = counted_->next();
    if (!record) break;
    bytes.append(reinterpret_cast<const char*>(record), size);
  }
  return bytes;
}

void KneserNey::begin_shard(std::string_view words, uint64_t sentences, uint64_t tokens, uint32_t longest) {
  if (sentences > kMostWords || tokens > kMostWords) throw std::invalid_argument("the counts of more words than there may be");
  sentences_ += sentences;
  tokens_ += tokens;
  check_size();
  longest_ = std::max(longest_, longest);
  added_ = 0;
  numbers_.assign({0, kBegin, kEnd});
  while (!words.empty()) {
    const size_t end = words.find('\n');
    const std::string_view word = words.substr(0, end);
    if (end == std::string_view::npos || word.empty() || std::any_of(word.begin(), word.end(), is_blank))
      throw std::invalid_argument("a list of words");
    numbers_.push_back(words_.add(word));
    if (numbers_.back() <= kEnd) throw std::invalid_argument("a list of words without the special ones");
    words.remove_prefix(end + 1);
  }
}

void KneserNey::add_counts(std::string_view records) {
  const size_t size = (order_ + 1) * sizeof(uint32_t);
  if (records.size() % size != 0) throw std::invalid_argument("whole records");
  std::vector<uint32_t> record(order_ + 1);
  for (; !records.empty(); records.remove_prefix(size)) {
    std::memcpy(record.data(), records.data(), size);
    added_ += record[order_];
    bool right = record[order_] > 0 && added_ <= kMostWords && record[0] != kBegin;
    for (int k = 0; k < order_; ++k) {  // nothing but <s> stands before <s>, and </s> is the last
      right = right && record[k] < numbers_.size() && (k == 0 || (record[k] != kEnd && (record[k - 1] != kBegin || record[k] == kBegin)));
      if (right) record[k] = numbers_[record[k]];
    }
    if (!right) throw std::invalid_argument("n-grams of the words");
    counted_->add(record.data());
  }
}

std::vector<std::vector<uint64_t>> KneserNey::adjust() {
  lines_.finish([this](std::string_view line) { read(line); });
  for (int k = 2; k <= order_; ++k) by_context_[k] = std::make_unique<Sorter>(k + 1, k, false, share(k), folder_, threads_);
  unigrams_.assign(words_.size(), 0);
  // Of the n-grams that the last one counted ends in, those that may go on: their words are the first of `last`.
  std::vector<uint32_t> last(order_, kBegin), adjusted(order_ + 1), actual(order_ + 1);
  int open = 0;
  while (const uint32_t* ngram = counted_->next()) {
    const uint32_t count = ngram[order_];
    const auto same = static_cast<int>(std::mismatch(last.begin(), last.begin() + open, ngram).first - last.begin());
    for (; open > same; --open) emit(open, last.data(), adjusted[open], actual[open]);
    for (int k = 1; k <= same; ++k) actual[k] += count;
    if (same > 0) ++adjusted[same];  // one more word that stands before it
    // Nothing stands before <s>: what begins with it has the count itself, and is as long as it gets.
    const auto begin = static_cast<int>(std::find(ngram, ngram + order_, kBegin) - ngram) + 1;
    for (int k = same + 1; k <= std::min(begin, order_ - 1); ++k) {
      adjusted[k] = k == begin ? count : 1;
      actual[k] = count;
      open = k;
    }
    if (begin >= order_) emit(order_, ngram, count, count);
    std::copy(ngram, ngram + order_, last.begin());
  }
  for (; open > 0; --open) emit(open, last.data(), adjusted[open], actual[open]);
  counted_.reset();
  return {counts_of_counts_.begin() + 1, counts_of_counts_.end()};
}

void KneserNey::emit(int length, const uint32_t* words, uint32_t adjusted, uint32_t actual) {
  const bool pruned = actual <= prune_[length - 1];
  if (adjusted <= 4) ++counts_of_counts_[length][adjusted - 1];
  ++counts_of_counts_[length][4];
  if (length == 1) {
    unigrams_[words[0]] = adjusted;
    return;
  }
  std::vector<uint32_t> record(words + 1, words + length);
  record.push_back(words[0]);
  record.push_back(adjusted | (pruned ? kPruned : 0));
  by_context_[length]->add(record.data());
}

void KneserNey::estimate(const std::vector<std::vector<double>>& discounts) {
  for (int k = 1; k <= order_; ++k) {
    finished_[k] = std::make_unique<Spool>(k + 2, share(k) / 2, folder_);
    if (k == 1) {
      discount_unigrams(discounts[0]);
    } else {
      discount(k, discounts[k - 1]);
      heads_[k] = discounted_[k]->next();
      left_heads_[k - 1] = left_[k - 1]->next();
    }
  }
  for (uint32_t word = 0; word < words_.size(); ++word) {
    output(1, &word, unigram_probs_[word]);
    continue_from(1, &word, unigram_probs_[word]);
  }
  discounted_.clear();
  left_.clear();
}

void KneserNey::discount_unigrams(const std::vector<double>& discounts) {
  double all = 0, left = 0;
  for (const uint32_t count : unigrams_) {
    all += count;
    if (count > 0) left += discounts[std::min(count, 3u) - 1];
  }
  const double uniform = left / all / (words_.size() - 1);  // over all words, </s> and <unk>
  unigram_probs_.assign(words_.size(), 1);
  for (uint32_t word = 0; word < words_.size(); ++word) {
    const uint32_t count = unigrams_[word];
    if (word != kBegin) unigram_probs_[word] = uniform + (count ? (count - discounts[std::min(count, 3u) - 1]) / all : 0);
  }
}

void KneserNey::discount(int length, const std::vector<double>& discounts) {
  Sorter& from = *by_context_[length];
  const int contexts = length - 1;
  discounted_[length] = std::make_unique<Sorter>(length + 2, length, false, share(length), folder_, threads_);
  left_[contexts] = std::make_unique<Spool>(contexts + 1, share(contexts) / 2, folder_);
  std::vector<uint32_t> context(contexts + 1), record(length + 2);
  std::vector<std::pair<uint32_t, uint32_t>> group;  // last word, count
  for (const uint32_t* ngram = from.next(); ngram;) {
    std::copy(ngram, ngram + contexts, context.begin());
    group.clear();
    double all = 0, left = 0;
    do {
      const uint32_t count = ngram[length] & ~kPruned;
      all += count;
      if (ngram[length] & kPruned) {
        left += count;
      } else {
        left += discounts[std::min(count, 3u) - 1];
        group.emplace_back(ngram[contexts], count);
      }
    } while ((ngram = from.next()) && std::equal(ngram, ngram + contexts, context.begin()));
    context[contexts] = bits(left / all);
    left_[contexts]->add(context.data());
    std::copy(context.begin(), context.begin() + contexts, record.begin() + 1);
    record[length + 1] = context[contexts];
    for (const auto& [word, count] : group) {
      record[0] = word;
      record[length] = bits((count - discounts[std::min(count, 3u) - 1]) / all);
      discounted_[length]->add(record.data());
    }
  }
  by_context_[length].reset();
}

// p(w | v c) = discounted count + what "v c" has left · p(w | c), for all n-grams "v c w" of the one that is given.
void KneserNey::continue_from(int length, const uint32_t* words, double prob) {
  const int longer = length + 1;
  if (longer > order_) return;
  std::vector<uint32_t> ngram(longer);
  while (heads_[longer] && std::equal(words, words + length, heads_[longer])) {
    const uint32_t* head = heads_[longer];
    std::copy(head, head + longer, ngram.begin());
    const double joined = number(head[longer]) + number(head[longer + 1]) * prob;
    heads_[longer] = discounted_[longer]->next();
    output(longer, ngram.data(), joined);
    continue_from(longer, ngram.data(), joined);
  }
}

void KneserNey::output(int length, const uint32_t* words, double prob) {
  std::vector<uint32_t> record(length + 2);
  std::reverse_copy(words, words + length, record.begin());
  record[length] = bits(std::min(0.0, std::log10(prob)));
  record[length + 1] = bits(length < order_ ? std::log10(left_by(length, words)) : 0);
  finished_[length]->add(record.data());
}

// What an n-gram leaves to shorter contexts when it is itself the context; all, where nothing follows it.
double KneserNey::left_by(int length, const uint32_t* words) {
  const uint32_t*& head = left_heads_[length];
  while (head && std::lexicographical_compare(head, head + length, words, words + length)) head = left_[length]->next();
  return head && std::equal(words, words + length, head) ? number(head[length]) : 1;
}

std::string KneserNey::next_piece() {
  std::string text;
  if (writing_ == 0) {
    text = "\\data\\\n";
    for (int k = 1; k <= order_; ++k) text += "ngram " + std::to_string(k) + "=" + std::to_string(finished_[k]->size()) + "\n";
  }
  while (writing_ <= order_ && text.size() < kPiece) {
    const uint32_t* record = writing_ == 0 ? nullptr : finished_[writing_]->next();
    if (record) {
      append_line(text, number(record[writing_]), words_, record, writing_);
      if (writing_ < order_) append_backoff(text, number(record[writing_ + 1]));
      text += '\n';
    } else {
      ++writing_;
      text += writing_ > order_ ? "\n\\end\\\n" : "\n\\" + std::to_string(writing_) + "-grams:\n";
    }
  }
  return text;
}

std::shared_ptr<NGramModel> KneserNey::model() {
  auto model = std::make_shared<NGramModel>(order_);
  size_t all = 1;
  for (int k = 1; k <= order_; ++k) all += finished_[k]->size();
  model->reserve(all);
  for (int k = 1; k <= order_; ++k) {
    while (const uint32_t* record = finished_[k]->next()) {
      const float prob = number(record[k]), backoff = number(record[k + 1]);
      if (k == 1) {  // in the order of their numbers, which the model therefore gives again
        model->add_unigram(words_[record[0]], prob, backoff);
      } else {
        model->add(record, k, prob, backoff);
      }
    }
    finished_[k].reset();
  }
  model->finish_building();
  return model;
}

}  // namespace unrolled
