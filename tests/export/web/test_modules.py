"""The page's modules against the Python they follow: text, random numbers, CTC, sound. No model or npm is needed."""

from __future__ import annotations

import itertools
import random
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soxr

from tests.export.web.serving import TEXTS, modules_alone, served
from unrolled.data.batching.ngrams import NgramCounts
from unrolled.search.ctc import best_path, prefix_search
from unrolled.search.ctc.confidence import label_confidences
from unrolled.search.ctc.label_text import words_between
from unrolled.tasks.classify.wide import WideShape
from unrolled.tasks.recognize.predict import cuts
from unrolled.tasks.shared.side import Side, prepared
from unrolled.tasks.tag.documents import words_of
from unrolled.text import Words, split_words, train_tokenizer
from unrolled.text.ngrams import NgramKinds, run_hash, word_ngrams


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(modules_alone(tmp_path_factory.mktemp("modules"))) as found:
        yield found


@pytest.fixture
def modules(address: str, page: Any) -> Any:
    """A page of the server that runs nothing of its own."""
    page.goto(f"{address}web/style.css")
    return page


def strings(count: int = 300) -> list[str]:
    """Texts, and random strings of letters, signs, marks, blanks and emoji of many scripts."""
    draw = random.Random(5)
    blocks = [(0x20, 0x7E), (0x80, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x5D0, 0x6FF), (0x900, 0x97F)]
    blocks += [(0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x20CF), (0x2100, 0x2BFF), (0x3000, 0x30FF)]
    blocks += [(0x4E00, 0x4FFF), (0xAC00, 0xACFF), (0xFB00, 0xFFEF), (0x1F300, 0x1FAFF), (0x9, 0x20), (0x61, 0x7A)]
    made = []
    for _ in range(count):
        codes = [draw.randint(*draw.choice(blocks)) for _ in range(draw.randint(1, 30))]
        made.append("".join(chr(code) for code in codes if unicodedata.category(chr(code)) != "Cn"))
    return [*TEXTS, *made]


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("level", ["char", "word", "symbols", "bpe"])
def test_tokenizers(level: str, lowercase: bool, modules: Any) -> None:
    texts = strings()
    size = 600 if level == "bpe" else None
    tokenizer = train_tokenizer(level, texts[::2], max_size=size, lowercase=lowercase, specials=["<bos>", "<eos>"])
    found = modules.evaluate(
        """async ([stored, texts]) => {
          const tokenizer = (await import("/web/tokenizers.js")).tokenizerOf(stored);
          return texts.map((text) => {
            const ids = tokenizer.ids(text);
            const tokens = ids.map((id) => tokenizer.token(id));
            return [ids, tokenizer.decode(ids), tokenizer.decode(ids.slice(1, -1)), tokens];
          });
        }""",
        [tokenizer.to_json(), texts],
    )
    for text, (ids, whole, part, tokens) in zip(texts, found, strict=True):
        assert ids == tokenizer.ids(text).tolist(), repr(text)
        assert (whole, part) == (tokenizer.decode(ids), tokenizer.decode(ids[1:-1]))
        assert tokens == [tokenizer.token(number) for number in ids]


def test_half_a_character(modules: Any) -> None:
    text = """async () => (await import("/web/text.js")).checkText("a\\ud800b")"""
    with pytest.raises(Exception, match="half a character, a lone surrogate"):
        modules.evaluate(text)


def test_lower_case_and_kinds_of_every_character(modules: Any) -> None:
    known = [code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
    lowered = modules.evaluate("codes => codes.map((code) => String.fromCodePoint(code).toLowerCase())", known)
    assert [code for code, low in zip(known, lowered, strict=True) if low != chr(code).lower()] == []
    split = modules.evaluate(
        """async (codes) => {
          const { splitWords } = await import("/web/words.js");
          return codes.map((code) => splitWords(`x${String.fromCodePoint(code)}y`).length);
        }""",
        known,
    )
    assert [code for code, count in zip(known, split, strict=True) if count != len(split_words(f"x{chr(code)}y"))] == []


def test_words_and_ngrams(modules: Any) -> None:
    texts = strings()
    words = Words.train([split_words(text) for text in texts[::3]])
    found = modules.evaluate(
        """async ([stored, texts]) => {
          const { splitWords, Words } = await import("/web/words.js");
          const { wordsOf } = await import("/web/tagged-words.js");
          const { ngramArrays } = await import("/web/ngrams.js");
          const known = new Words(stored);
          return texts.map((text) => {
            const words = splitWords(text);
            const { inputs, spelt, spellings } = known.arrays(words);
            const ngrams = ngramArrays(words, 997).ngrams.data;
            const letters = { spelt: spelt.data, spellings: spellings.data };
            return { words, tagged: wordsOf(text), ids: inputs.data, ...letters, ngrams };
          });
        }""",
        [words.to_json(), texts],
    )
    for text, one in zip(texts, found, strict=True):
        split = split_words(text)
        assert one["words"] == split, repr(text)
        assert one["tagged"] == words_of(text), repr(text)
        assert one["ids"] == (words.ids(split).tolist() or [0])
        distinct = list(dict.fromkeys(split))
        assert one["spelt"] == ([distinct.index(word) for word in split] or [0])
        width = max((len(words.spelling(word)) for word in distinct), default=1)
        letters = [[*words.spelling(word).tolist(), *[0] * width][:width] for word in distinct] or [[0]]
        assert one["spellings"] == [letter for word in letters for letter in word]
        low = [word.lower() for word in split]
        hashes = [one for word in low for one in word_ngrams(word)]
        hashes += [run_hash(*pair) for pair in itertools.pairwise(low)]
        assert sorted(one["ngrams"]) == sorted(value % 997 for value in hashes)


@pytest.mark.parametrize("kinds", [NgramKinds(2, (2, 5), 997, True), NgramKinds(3, (1, 4), 4096, False)])
def test_ngrams_of_the_wide_path(kinds: NgramKinds, modules: Any) -> None:
    texts = [*strings(60), "a a a A", ""]
    found = modules.evaluate(
        """async ([shape, texts]) => {
          const { splitWords } = await import("/web/words.js");
          const { wideArrays } = await import("/web/ngrams.js");
          return texts.map((text) => {
            const { wide_ngrams, wide_weights } = wideArrays(splitWords(text), shape);
            return [wide_ngrams.data, wide_weights.data];
          });
        }""",
        [WideShape(kinds, 1).to_json(), texts],
    )
    for text, (ids, weights) in zip(texts, found, strict=True):
        expected = NgramCounts([split_words(text)], kinds).gather(np.array([0]))
        assert ids == expected["wide_ngrams"].tolist(), repr(text)
        assert weights == pytest.approx(expected["wide_weights"].tolist(), abs=1e-6)


@pytest.mark.parametrize("form", ["", "NFD", "NFKC"])
def test_sides_of_translations(form: str, modules: Any) -> None:
    texts = strings(100)
    for level in ("char", "bpe"):
        tidy = [prepared(text, level, form) for text in texts]
        side = Side(train_tokenizer(level, tidy, max_size=500, specials=["<bos>", "<eos>"]), form)
        found = modules.evaluate(
            """async ([stored, texts]) => {
              const side = new (await import("/web/side.js")).Side(stored);
              return texts.map((text) => [side.ids(text), side.text(side.ids(text))]);
            }""",
            [side.to_json(), texts],
        )
        assert found == [[ids := side.ids(text).tolist(), side.text(ids)] for text in texts]


def test_random_numbers(modules: Any) -> None:
    seeds = [0, 1, 2, 123456789, 2**32 - 1, 2**32, 2**53 - 1]
    found = modules.evaluate(
        """async (seeds) => {
          const { Random } = await import("/web/random.js");
          return seeds.map((seed) => {
            const random = new Random(seed);
            return Array.from({ length: 700 }, () => random.random());
          });
        }""",
        seeds,
    )
    for seed, numbers in zip(seeds, found, strict=True):
        ours = random.Random(seed)
        assert numbers == [ours.random() for _ in range(700)]


def log_probs(steps: int, labels: int, seed: int) -> np.ndarray:
    """Random posteriors, in which some labels are clear and others are not."""
    scores = np.random.default_rng(seed).normal(size=(steps, labels)) * np.linspace(0.5, 4, steps)[:, None]
    shifted: np.ndarray = (scores - np.log(np.exp(scores).sum(1, keepdims=True))).astype(np.float32)
    return shifted


CTC = """async ([frames, beam]) => {
  const { bestPath, prefixSearch, confidences, wordsBetween } = await import("/web/ctc.js");
  const posteriors = { data: Float32Array.from(frames.flat()), shape: [frames.length, frames[0].length] };
  const found = beam > 1 ? prefixSearch(posteriors, beam) : bestPath(posteriors);
  const words = wordsBetween(found.labels, 3, false);
  return { ...found, confidences: confidences(words, found, posteriors, 3) };
}"""


@pytest.mark.parametrize("seed", range(6))
def test_ctc(seed: int, modules: Any) -> None:
    frames = log_probs(8 + 6 * seed, 5, seed)
    for beam in (1, 3, 50):
        ours = modules.evaluate(CTC, [frames.tolist(), beam])
        theirs = best_path(frames) if beam == 1 else prefix_search(frames, beam)[0]
        assert ours["labels"] == theirs.labels
        assert [tuple(span) for span in ours["spans"]] == theirs.spans
        assert ours["score"] == pytest.approx(theirs.score, abs=1e-4)
        words = [word[:3] for word in words_between(theirs, ["-", "a", "b", " ", "c"], 3, False)]
        assert ours["confidences"] == pytest.approx(label_confidences(words, theirs, frames, 0, 3), abs=1e-6)


@pytest.mark.parametrize(("rate", "wanted"), [(48000, 16000), (44100, 16000), (8000, 16000), (22050, 8000)])
def test_resampling(rate: int, wanted: int, modules: Any) -> None:
    """Against soxr: what both rates can hold is the same, what the new one cannot hold is gone."""
    time = np.arange(rate // 2) / rate
    tones = [100.0, 440.0, 0.3 * min(rate, wanted), 0.42 * min(rate, wanted)]
    samples = np.sum([np.sin(2 * np.pi * tone * time + tone) for tone in tones], axis=0) / 8
    if wanted < rate:
        samples = samples + 0.1 * np.sin(2 * np.pi * 0.58 * wanted * time)
    samples = samples.astype(np.float32)
    code = """async ([samples, from, to, piece]) => {
      const { joined, Resampler } = await import("/web/sound.js");
      const [resampler, given, parts] = [new Resampler(from, to), Float32Array.from(samples), []];
      for (let at = 0; at < given.length; at += piece) parts.push(resampler.feed(given.slice(at, at + piece)));
      return Array.from(joined([...parts, resampler.finish()]));
    }"""
    whole = modules.evaluate(code, [samples.tolist(), rate, wanted, len(samples)])
    assert modules.evaluate(code, [samples.tolist(), rate, wanted, 1000]) == whole  # the split changes nothing
    expected = soxr.resample(samples, rate, wanted)
    assert abs(len(whole) - len(expected)) <= 1
    middle = slice(wanted // 20, len(expected) - wanted // 20)
    assert np.abs(np.array(whole)[middle] - expected[middle]).max() < 2e-3


def test_cutting(modules: Any) -> None:
    draw = np.random.default_rng(2)
    for length, most, smooth in ((9, 6, 1), (200, 120, 20), (500, 90, 20), (60, 40, 7)):
        weight = draw.random(length) ** 4
        (_, end) = next(cuts(weight, most, smooth))
        code = """async ([weight, most, smooth]) => (await import("/web/windows.js")).firstCut(weight, most, smooth)"""
        assert modules.evaluate(code, [weight.tolist(), most, smooth]) == end


def test_every_module_is_loaded_by_the_page() -> None:
    """Each file is imported by another one, or named in the page."""
    folder = Path(__file__).parents[3] / "unrolled" / "export" / "web"
    modules = {path.name: path.read_text() for path in folder.iterdir()}
    for name in modules:
        if name != "index.html":
            others = [text for other, text in modules.items() if other != name]
            assert any(name in text for text in others), name
