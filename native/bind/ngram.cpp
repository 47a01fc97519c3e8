#include "bind/ngram.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "ngram/arpa.h"
#include "ngram/kneser_ney.h"
#include "ngram/mix.h"
#include "ngram/ngram.h"

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

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Whole lines of text, a sentence each, blank ones apart: float32 log10 of every word and sentence end; a byte for each,
// whether it is a known word; a byte for each, whether a sentence ends with it.
nb::tuple score_text(const NGramModel& model, nb::bytes given) {
  const std::string_view text(given.c_str(), given.size());
  std::vector<float> scores;
  std::string known, ends;
  {
    nb::gil_scoped_release release;
    NGramState state = model.start();
    bool any = false;
    const auto score = [&](uint32_t word, bool end) {
      scores.push_back(model.score_log10(state, word, state));
      known.push_back(word != NGramModel::kUnknown);
      ends.push_back(end);
    };
    for (size_t at = 0; at <= text.size();) {
      size_t end = at;
      while (end < text.size() && !is_blank(text[end])) ++end;
      if (end > at) {
        any = true;
        score(model.find(text.substr(at, end - at)), false);
      }
      if (any && (end == text.size() || text[end] == '\n')) {
        score(model.end_word(), true);
        state = model.start();
        any = false;
      }
      at = end + 1;
    }
  }
  return nb::make_tuple(nb::bytes(reinterpret_cast<const char*>(scores.data()), scores.size() * sizeof(float)),
                        nb::bytes(known.data(), known.size()), nb::bytes(ends.data(), ends.size()));
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

// Text as it is made, piece by piece.
template <class Writer, std::string (Writer::*next)()>
nb::bytes next_piece(Writer& writer) {
  std::string piece;
  {
    nb::gil_scoped_release release;
    piece = (writer.*next)();
  }
  return nb::bytes(piece.data(), piece.size());
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
      .def("score_text", &score_text)
      .def("find", &NGramModel::find)
      .def("word", [](const NGramModel& self, uint32_t word) { return std::string(self.words()[checked_word(self, word)]); })
      .def("ngrams", &ngrams)
      .def("count", &NGramModel::count)
      .def_prop_ro("order", &NGramModel::order)
      .def_prop_ro("word_count", [](const NGramModel& self) { return self.words().size(); })
      .def_prop_ro("has_unknown", &NGramModel::has_unknown)
      .def_prop_ro("bytes", &NGramModel::bytes);
  m.def("mix_ngrams", &mix, nb::call_guard<nb::gil_scoped_release>());
  nb::class_<ArpaReader>(m, "ArpaReader")
      .def(nb::init<size_t>())
      .def("feed", [](ArpaReader& self, nb::bytes piece) {
        const std::string_view text(piece.c_str(), piece.size());
        nb::gil_scoped_release release;
        self.feed(text);
      })
      .def("finish", &ArpaReader::finish, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("unigram_sum", &ArpaReader::unigram_sum);
  nb::class_<KneserNey>(m, "KneserNey")
      .def(nb::init<int, std::vector<uint32_t>, size_t, std::string, int>())
      .def("feed", [](KneserNey& self, nb::bytes piece) {
        const std::string_view text(piece.c_str(), piece.size());
        nb::gil_scoped_release release;
        self.feed(text);
      })
      .def("shard_words", [](KneserNey& self) {
        const std::string words = self.shard_words();
        return nb::bytes(words.data(), words.size());
      })
      .def("next_counts", &next_piece<KneserNey, &KneserNey::next_counts>)
      .def("begin_shard", [](KneserNey& self, nb::bytes words, uint64_t sentences, uint64_t tokens, uint32_t longest) {
        self.begin_shard({words.c_str(), words.size()}, sentences, tokens, longest);
      })
      .def("add_counts", [](KneserNey& self, nb::bytes records) {
        const std::string_view bytes(records.c_str(), records.size());
        nb::gil_scoped_release release;
        self.add_counts(bytes);
      })
      .def("adjust", &KneserNey::adjust, nb::call_guard<nb::gil_scoped_release>())
      .def("estimate", &KneserNey::estimate, nb::call_guard<nb::gil_scoped_release>())
      .def("next", &next_piece<KneserNey, &KneserNey::next_piece>)
      .def("model", &KneserNey::model, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("counts", &KneserNey::counts)
      .def_prop_ro("sentences", &KneserNey::sentences)
      .def_prop_ro("tokens", &KneserNey::tokens)
      .def_prop_ro("longest", &KneserNey::longest);
  nb::class_<ArpaWriter>(m, "ArpaWriter")
      .def(nb::init<std::shared_ptr<const NGramModel>>())
      .def("next", &next_piece<ArpaWriter, &ArpaWriter::next>);
}

}  // namespace unrolled
