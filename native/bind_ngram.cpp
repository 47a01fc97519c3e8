#include "bind_ngram.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "arpa.h"
#include "ngram.h"

namespace nb = nanobind;

namespace unrolled {
namespace {

uint32_t checked_word(const NGramModel& model, uint32_t word) {
  if (word >= model.words().size()) throw nb::index_error("there is no word of this number");
  return word;
}

NGramState checked_state(const NGramModel& model, uint32_t state) {
  if (state >= model.node_count()) throw nb::index_error("there is no state of this number");
  return {state};
}

// (log10 probability, length of the n-gram found) of each word from a state on, and the state after the last.
std::pair<std::vector<std::pair<float, int>>, uint32_t> score_words(const NGramModel& model, uint32_t from,
                                                                     const std::vector<uint32_t>& words) {
  std::vector<std::pair<float, int>> scores;
  NGramState state = checked_state(model, from);
  for (const uint32_t word : words) {
    int length = 0;
    const float score = model.score_log10(state, checked_word(model, word), state, &length);
    scores.emplace_back(score, length);
  }
  return {scores, state.node};
}

std::vector<std::tuple<std::vector<uint32_t>, float, float>> ngrams(const NGramModel& model, int order) {
  std::vector<std::tuple<std::vector<uint32_t>, float, float>> found;
  std::vector<uint32_t> words(order);
  for (uint32_t node = 1; node < model.node_count(); ++node) {
    if (model.length(node) != order || model.is_blank(node)) continue;
    model.words_of(node, words.data());
    found.emplace_back(words, model.prob(node), model.backoff(node));
  }
  return found;
}

}  // namespace

void bind_ngram(nb::module_& m) {
  nb::class_<NGramModel>(m, "NGramModel")
      .def(nb::init<int>())
      .def("add_unigram", &NGramModel::add_unigram)
      .def("add", [](NGramModel& self, const std::vector<uint32_t>& words, float prob, float backoff) {
        if (words.size() < 2 || static_cast<int>(words.size()) > self.order()) throw nb::value_error("2 words to the order");
        for (const uint32_t word : words) checked_word(self, word);
        return self.add(words.data(), static_cast<int>(words.size()), prob, backoff);
      })
      .def("finish_building", &NGramModel::finish_building)
      .def("start", [](const NGramModel& self) { return self.start().node; })
      .def("score", [](const NGramModel& self, uint32_t state, uint32_t word) {
        NGramState next;
        const float score = self.score(checked_state(self, state), checked_word(self, word), next);
        return std::pair(score, next.node);
      })
      .def("finish", [](const NGramModel& self, uint32_t state) { return self.finish(checked_state(self, state)); })
      .def("score_words", &score_words)
      .def("find", &NGramModel::find)
      .def("word", [](const NGramModel& self, uint32_t word) { return self.words()[checked_word(self, word)]; })
      .def("ngrams", &ngrams)
      .def("count", &NGramModel::count)
      .def_prop_ro("order", &NGramModel::order)
      .def_prop_ro("word_count", [](const NGramModel& self) { return self.words().size(); })
      .def_prop_ro("has_unknown", &NGramModel::has_unknown)
      .def_prop_ro("bytes", &NGramModel::bytes);
  nb::class_<ArpaReader>(m, "ArpaReader")
      .def(nb::init<>())
      .def("feed", [](ArpaReader& self, nb::bytes piece) {
        const std::string_view text(piece.c_str(), piece.size());
        nb::gil_scoped_release release;
        self.feed(text);
      })
      .def("finish", &ArpaReader::finish, nb::call_guard<nb::gil_scoped_release>());
  nb::class_<ArpaWriter>(m, "ArpaWriter")
      .def(nb::init<std::shared_ptr<const NGramModel>>())
      .def("next", [](ArpaWriter& self) {
        std::string piece;
        {
          nb::gil_scoped_release release;
          piece = self.next();
        }
        return nb::bytes(piece.data(), piece.size());
      });
}

}  // namespace unrolled
