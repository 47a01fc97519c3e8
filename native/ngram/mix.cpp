#include "ngram/mix.h"

#include <algorithm>
#include <cmath>

namespace unrolled {
namespace {

// A model among others that are mixed: their common words by the numbers they have here.
struct Part {
  const NGramModel* model;
  double weight;
  std::vector<uint32_t> own;     // by common number; Words::kNone where it has none
  std::vector<uint32_t> common;  // by own number

  double prob(const uint32_t* words, int count) const {
    if (own[words[count - 1]] == Words::kNone) return 0;
    NGramState state;
    float score = 0;
    for (int i = 0; i < count; ++i) {
      const uint32_t word = own[words[i]];
      score = model->score_log10(state, word == Words::kNone ? NGramModel::kUnknown : word, state);
    }
    return std::pow(10.0, score);
  }
};

std::vector<Part> parts_of(const std::vector<const NGramModel*>& models, const std::vector<double>& weights, Words& all) {
  all.add("<unk>");
  for (const NGramModel* model : models)
    for (uint32_t word = 0; word < model->words().size(); ++word) all.add(model->words()[word]);
  std::vector<Part> parts;
  for (size_t i = 0; i < models.size(); ++i) {
    Part part{models[i], weights[i], std::vector<uint32_t>(all.size(), Words::kNone), {}};
    for (uint32_t word = 0; word < models[i]->words().size(); ++word) {
      part.common.push_back(all.find(models[i]->words()[word]));
      if (word != NGramModel::kUnknown || models[i]->has_unknown()) part.own[part.common.back()] = word;
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

std::shared_ptr<NGramModel> mix(const std::vector<const NGramModel*>& models, const std::vector<double>& weights) {
  Words all;
  const std::vector<Part> parts = parts_of(models, weights, all);
  int order = 1;
  for (const NGramModel* model : models) order = std::max(order, model->order());
  auto mixed = std::make_shared<NGramModel>(order);
  const auto prob_of = [&parts](const uint32_t* words, int count) {
    double sum = 0;
    for (const Part& part : parts) sum += part.weight * part.prob(words, count);
    return sum > 0 ? static_cast<float>(std::min(0.0, std::log10(sum))) : NGramModel::kImpossible;
  };
  // <unk> is 0 in both; the others are added in the order of their common numbers, which they therefore keep
  for (uint32_t word = 0; word < all.size(); ++word) {
    const bool begin = all[word] == "<s>";  // nobody predicts it
    if (std::any_of(parts.begin(), parts.end(), [word](const Part& part) { return part.own[word] != Words::kNone; }))
      mixed->add_unigram(all[word], begin ? 0 : prob_of(&word, 1), 0);
  }
  std::vector<uint32_t> words(order);
  for (int length = 2; length <= order; ++length) {
    for (const Part& part : parts) {
      for (uint32_t node = 1; node < part.model->node_count(); ++node) {
        if (part.model->length(node) != length) continue;  // blank ones become n-grams: they need back-offs
        part.model->words_of(node, words.data());
        for (int i = 0; i < length; ++i) words[i] = part.common[words[i]];
        if (!mixed->has(words.data(), length)) mixed->add(words.data(), length, prob_of(words.data(), length), 0);
      }
    }
  }
  mixed->finish_normalised();
  return mixed;
}

}  // namespace unrolled
