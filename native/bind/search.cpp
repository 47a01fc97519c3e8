#include "bind/search.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "search/dictionary_search.h"
#include "search/prefix_search.h"

namespace nb = nanobind;

namespace unrolled {
namespace {

Frames frames_at(uintptr_t address, int64_t count, int labels) {
  return {reinterpret_cast<const float*>(address), labels, count, labels};
}

std::shared_ptr<Lexicon> make_lexicon(uintptr_t labels, uintptr_t starts, uintptr_t words, int64_t count,
                                      bool share_ends) {
  return std::make_shared<Lexicon>(reinterpret_cast<const int32_t*>(labels), reinterpret_cast<const int64_t*>(starts),
                                   reinterpret_cast<const int32_t*>(words), count, share_ends);
}

}  // namespace

void bind_search(nb::module_& m) {
  nb::class_<Hotwords>(m, "Hotwords")
      .def(nb::init<>())
      .def_rw("begins", &Hotwords::begins)
      .def_rw("labels", &Hotwords::labels)
      .def_rw("targets", &Hotwords::targets)
      .def_rw("shorter", &Hotwords::shorter)
      .def_rw("partial", &Hotwords::partial)
      .def_rw("complete", &Hotwords::complete)
      .def_rw("final", &Hotwords::final)
      .def_rw("start", &Hotwords::start)
      .def_rw("most", &Hotwords::most)
      .def("prepare", &Hotwords::prepare);
  nb::class_<PrefixSearch>(m, "PrefixSearch")
      .def(nb::init<int, int, int, double, bool, std::shared_ptr<Hotwords>>(), nb::arg("labels"), nb::arg("blank"),
           nb::arg("beam"), nb::arg("margin"), nb::arg("add"), nb::arg("hotwords").none() = nb::none())
      .def("feed", [](PrefixSearch& self, uintptr_t frames, int64_t count, int labels) {
        self.feed(frames_at(frames, count, labels));
      }, nb::call_guard<nb::gil_scoped_release>())
      .def("best", [](const PrefixSearch& self, int count) {
        std::vector<std::tuple<double, std::vector<int32_t>>> found;
        for (auto& one : self.best(count)) found.emplace_back(one.score, std::move(one.labels));
        return found;
      });
  nb::class_<Lexicon>(m, "Lexicon")
      .def("size", &Lexicon::size)
      .def("bytes", &Lexicon::bytes);
  m.def("make_lexicon", &make_lexicon, nb::call_guard<nb::gil_scoped_release>());
  nb::class_<WordModel>(m, "WordModel");
  m.def("ngram_word_model", [](std::shared_ptr<NGramModel> model) -> std::shared_ptr<WordModel> {
    return std::make_shared<NGramWordModel>(std::move(model));
  });
  m.def("uniform_word_model", [](int64_t words) -> std::shared_ptr<WordModel> {
    return std::make_shared<UniformWordModel>(words);
  });
  nb::class_<Dictionary>(m, "Dictionary")
      .def("bytes", &Dictionary::bytes);
  m.def("make_dictionary",
        [](std::shared_ptr<Lexicon> lexicon, std::shared_ptr<WordModel> lm, const std::vector<std::string>& words) {
          return std::make_shared<Dictionary>(std::move(lexicon), std::move(lm), words);
        }, nb::arg("lexicon"), nb::arg("lm").none(), nb::arg("words"));
  nb::class_<DictionaryOptions>(m, "DictionaryOptions")
      .def(nb::init<>())
      .def_rw("labels", &DictionaryOptions::labels)
      .def_rw("blank", &DictionaryOptions::blank)
      .def_rw("doubles", &DictionaryOptions::doubles)
      .def_rw("separator", &DictionaryOptions::separator)
      .def_rw("beam", &DictionaryOptions::beam)
      .def_rw("per_node", &DictionaryOptions::per_node)
      .def_rw("margin", &DictionaryOptions::margin)
      .def_rw("sum", &DictionaryOptions::sum)
      .def_rw("recombine", &DictionaryOptions::recombine)
      .def_rw("look_ahead", &DictionaryOptions::look_ahead)
      .def_rw("lm_weight", &DictionaryOptions::lm_weight)
      .def_rw("word_bonus", &DictionaryOptions::word_bonus)
      .def_rw("unknown_penalty", &DictionaryOptions::unknown_penalty);
  nb::class_<DictionarySearch>(m, "DictionarySearch")
      .def("__init__", [](DictionarySearch* self, std::shared_ptr<Dictionary> dictionary, const DictionaryOptions& options,
                          std::shared_ptr<Hotwords> hotwords) {
        new (self) DictionarySearch(std::move(dictionary), options, std::move(hotwords));
      }, nb::arg("dictionary"), nb::arg("options"), nb::arg("hotwords").none() = nb::none())
      .def("feed", [](DictionarySearch& self, uintptr_t frames, int64_t count, int labels) {
        self.feed(frames_at(frames, count, labels));
      }, nb::call_guard<nb::gil_scoped_release>())
      .def("best", [](const DictionarySearch& self, int count) {
        std::vector<std::tuple<double, bool, std::vector<int32_t>, std::vector<int32_t>, std::vector<int32_t>,
                               std::vector<int32_t>, std::vector<int32_t>>> found;
        for (auto& one : self.best(count))
          found.emplace_back(one.score, one.complete, one.labels, one.starts, one.ends, one.words, one.word_ends);
        return found;
      });
  m.def("feed_all", [](const std::vector<DictionarySearch*>& searches, const std::vector<std::tuple<uintptr_t, int64_t, int>>& frames, int threads) {
    std::vector<Frames> all;
    for (const auto& [address, count, labels] : frames) all.push_back(frames_at(address, count, labels));
    nb::gil_scoped_release release;
    feed_all(searches, all, threads);
  }, "Feeds each search its frames, several at a time.");
}

}  // namespace unrolled
