#include "search/prefix_search.h"

#include <algorithm>
#include <numeric>

namespace unrolled {

PrefixSearch::PrefixSearch(int labels, int blank, int beam, double margin, bool sum,
                           std::shared_ptr<const Hotwords> hotwords)
    : labels_(labels), blank_(blank), beam_(static_cast<size_t>(beam)), margin_(margin), sum_(sum),
      hotwords_(std::move(hotwords)), taken_(labels) {
  entries_.push_back({0, 0.0, kNever, 0.0, 0.0});
  if (hotwords_) heard_.push_back({hotwords_->start, 0.0});
}

PrefixSearch::Heard PrefixSearch::heard_after(const Heard& before, int32_t label) const {
  if (!hotwords_) return before;
  const int32_t state = hotwords_->next(before.state, label);
  return {state, before.added + hotwords_->added(before.state, state)};
}

void PrefixSearch::feed(const Frames& frames) {
  for (int64_t t = 0; t < frames.count; ++t) step(frames.at(t));
}

void PrefixSearch::step(const float* x) {
  if (entries_.empty()) return;  // no label had a probability above zero
  stay(x);
  arrive(x);
  extend(x);
  keep_best();
}

// A labelling gets a blank, or its last label again.
void PrefixSearch::stay(const float* x) {
  next_.clear();
  for (const Entry& entry : entries_) {
    const double again = entry.node ? entry.label + x[tree_[entry.node].label] : kNever;
    next_.push_back({entry.node, entry.total + x[blank_], again, 0.0, 0.0});
  }
}

// A labelling gets a label; the longer labelling is already an entry.
void PrefixSearch::arrive(const float* x) {
  slots_.resize(tree_.size(), -1);
  for (size_t i = 0; i < entries_.size(); ++i) slots_[entries_[i].node] = static_cast<int32_t>(i);
  first_child_.assign(entries_.size(), -1);
  next_child_.assign(entries_.size(), -1);
  for (size_t i = 0; i < entries_.size(); ++i) {
    const auto [parent, label] = tree_[entries_[i].node];
    const int32_t from = parent < 0 ? -1 : slots_[parent];
    if (from >= 0) {
      next_child_[i] = first_child_[from];
      first_child_[from] = static_cast<int32_t>(i);
      const bool doubled = parent > 0 && tree_[parent].label == label;  // needs a blank in between
      const double arrival = (doubled ? entries_[from].blank : entries_[from].total) + x[label];
      next_[i].label = merged(next_[i].label, arrival, sum_);
    }
    next_[i].total = merged(next_[i].blank, next_[i].label, sum_);
    next_[i].ranked = next_[i].total + heard(next_[i].node).added;
  }
  for (const Entry& entry : entries_) slots_[entry.node] = -1;
}

// A lower bound of the score of the worst labelling that is kept.
double PrefixSearch::bar_of_stays() {
  scores_.clear();
  for (const Entry& entry : next_) scores_.push_back(entry.ranked);
  const double best = *std::max_element(scores_.begin(), scores_.end());
  if (scores_.size() < beam_) return best - margin_;
  std::nth_element(scores_.begin(), scores_.begin() + (beam_ - 1), scores_.end(), std::greater<>());
  return std::max(scores_[beam_ - 1], best - margin_);
}

// A labelling gets a label; the longer labelling is not yet an entry.
void PrefixSearch::extend(const float* x) {
  extensions_.clear();
  double bar = bar_of_stays();
  order_.clear();  // labels that may pass the bar after the best labelling, the first entry
  const double most = hotwords_ ? hotwords_->most : 0.0;
  for (int c = 0; c < labels_; ++c)
    if (c != blank_ && entries_[0].ranked + most + x[c] >= bar) order_.push_back(c);
  std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) { return x[a] > x[b] || (x[a] == x[b] && a < b); });
  std::fill(taken_.begin(), taken_.end(), -1);
  const auto better = [](const Extension& a, const Extension& b) {
    if (a.ranked != b.ranked) return a.ranked > b.ranked;
    return a.entry != b.entry ? a.entry < b.entry : a.label < b.label;
  };
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const int32_t last = tree_[entry.node].label;
    const Heard before = heard(entry.node);
    for (int32_t child = first_child_[i]; child >= 0; child = next_child_[child])
      taken_[tree_[entries_[child].node].label] = static_cast<int32_t>(i);
    for (const int32_t c : order_) {
      if (entry.ranked + most + x[c] < bar) break;
      const double score = (c == last ? entry.blank : entry.total) + x[c];
      if (score + before.added + most < bar) continue;
      const double ranked = score + heard_after(before, c).added;
      if (ranked < bar || score == kNever || taken_[c] == static_cast<int32_t>(i)) continue;
      extensions_.push_back({score, ranked, static_cast<int32_t>(i), c});
    }
    if (extensions_.size() > 4 * beam_) {
      std::nth_element(extensions_.begin(), extensions_.begin() + (beam_ - 1), extensions_.end(), better);
      extensions_.resize(beam_);
      bar = std::max(bar, extensions_[beam_ - 1].ranked);
    }
  }
}

void PrefixSearch::keep_best() {
  const size_t stays = next_.size();
  for (const Extension& one : extensions_) next_.push_back({-1 - static_cast<int32_t>(&one - extensions_.data()), kNever, one.score, one.score, one.ranked});
  // order of equal scores: entries that stay first, then by entry and label
  const auto rank = [&](const Entry& entry) {
    if (entry.node >= 0) return std::pair<int64_t, int64_t>(-1, 0);
    const Extension& one = extensions_[-1 - entry.node];
    return std::pair<int64_t, int64_t>(one.entry, one.label);
  };
  std::vector<int32_t> chosen(next_.size());
  std::iota(chosen.begin(), chosen.end(), 0);
  const auto better = [&](int32_t a, int32_t b) {
    if (next_[a].ranked != next_[b].ranked) return next_[a].ranked > next_[b].ranked;
    const bool new_a = a >= static_cast<int32_t>(stays), new_b = b >= static_cast<int32_t>(stays);
    if (!new_a || !new_b) return a < b;
    return rank(next_[a]) < rank(next_[b]);
  };
  if (chosen.size() > beam_) {
    std::nth_element(chosen.begin(), chosen.begin() + (beam_ - 1), chosen.end(), better);
    chosen.resize(beam_);
  }
  std::sort(chosen.begin(), chosen.end(), better);
  const std::vector<Entry> before = std::move(entries_);
  entries_.clear();
  for (const int32_t one : chosen) {
    Entry entry = next_[one];
    if (entry.total == kNever || entry.ranked < next_[chosen[0]].ranked - margin_) break;
    if (entry.node < 0) {
      const Extension& extension = extensions_[-1 - entry.node];
      const int32_t parent = before[extension.entry].node;
      entry.node = tree_.child(parent, extension.label);
      if (hotwords_ && entry.node == static_cast<int32_t>(heard_.size()))
        heard_.push_back(heard_after(heard_[parent], extension.label));
    }
    entries_.push_back(entry);
  }
}

std::vector<PrefixSearch::Labelling> PrefixSearch::best(int count) const {
  std::vector<std::pair<double, const Entry*>> ends;
  for (const Entry& entry : entries_)
    ends.emplace_back(entry.ranked + (hotwords_ ? hotwords_->final[heard_[entry.node].state] : 0.0), &entry);
  if (hotwords_)
    std::stable_sort(ends.begin(), ends.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Labelling> found;
  for (const auto& [score, end] : ends) {
    const Entry& entry = *end;
    if (static_cast<int>(found.size()) == count) break;
    Labelling one{score, {}};
    for (int32_t node = entry.node; node; node = tree_[node].parent) one.labels.push_back(tree_[node].label);
    std::reverse(one.labels.begin(), one.labels.end());
    found.push_back(std::move(one));
  }
  return found;
}

}  // namespace unrolled
