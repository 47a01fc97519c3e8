// Several n-gram models made one.
#pragma once

#include <memory>
#include <vector>

#include "ngram/ngram.h"

namespace unrolled {

// One model of all their n-grams: p(w | c) = Σ weight · p_i(w | c) for those that any of them has, with back-offs to match.
// A word that a model does not have is impossible for it, not <unk>.
std::shared_ptr<NGramModel> mix(const std::vector<const NGramModel*>& models, const std::vector<double>& weights);

}  // namespace unrolled
