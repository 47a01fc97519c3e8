"""Checks of searches, n-gram models and changed pictures in a wheel's extension.

`packaging/check_kernels.py` runs them. Searches are compared with every path there is, n-gram models with their
equations, pictures with Pillow and NumPy, to the bit.
"""

from __future__ import annotations

import itertools
import math
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from comparing import Array, Checks, floats

SAME = 1e-9  # sums in float64
LETTERS = "ab"  # labels 1 and 2; 0 is the blank
WORDS = ("a", "ab", "ba")
TEXT = ("a ab a", "ab ba", "a a ba ab", "ba a", "ab a ab ba")
DISCOUNTS = (0.5, 1.0, 1.5)


def log_probs_of(steps: int, labels: int, seed: int) -> Array:
    scores = np.random.default_rng([steps, labels, seed]).normal(size=(steps, labels)) * 2
    return floats(scores - np.log(np.exp(scores).sum(-1, keepdims=True)))


def reads(path: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(label for label, _ in itertools.groupby(path) if label)


def labellings(log_probs: Array, add: bool) -> dict[tuple[int, ...], float]:
    """Every labelling with the sum of its paths, or the best of them."""
    found: dict[tuple[int, ...], list[float]] = defaultdict(list)
    rows = log_probs.astype(np.float64)
    for path in itertools.product(range(rows.shape[1]), repeat=len(rows)):
        found[reads(path)].append(sum(row[label] for row, label in zip(rows, path, strict=True)))
    return {key: float(np.logaddexp.reduce(scores) if add else max(scores)) for key, scores in found.items()}


def hotword(native: Any) -> Any:
    """The automaton of one phrase, the labels 1 and 2, each worth 0.7."""
    hot = native.Hotwords()
    hot.begins, hot.labels, hot.targets, hot.shorter = [0, 1, 2, 2], [1, 2], [1, 2], [-1, 0, 0]
    hot.partial, hot.complete, hot.final = [0.0, 0.7, 0.0], [0.0, 0.0, 1.4], [0.0, -0.7, 0.0]
    hot.start, hot.most = 0, 0.75
    return hot


def check_hotwords(native: Any, checks: Checks) -> None:
    """Every labelling, with 1.4 for each place where the phrase stands."""
    for add in (False, True):
        log_probs = log_probs_of(6, 3, 1)
        search = native.PrefixSearch(3, 0, 10_000, math.inf, add, hotword(native))
        search.feed(log_probs.ctypes.data, 6, 3)
        expected = {
            key: score + 1.4 * sum(pair == (1, 2) for pair in itertools.pairwise(key))
            for key, score in labellings(log_probs, add).items()
        }
        found = search.best(10_000)
        checks.same("hotwords", {tuple(one[1]) for one in found}, set(expected))
        scores = np.array([one[0] for one in found])
        checks.close("hotwords", scores, np.array([expected[tuple(one[1])] for one in found]), SAME)
        checks.same("hotwords", list(scores), sorted(scores, reverse=True))


def check_prefix_search(native: Any, checks: Checks) -> None:
    """A beam without an end finds every labelling with its score."""
    for (steps, labels), add in itertools.product([(1, 2), (4, 3), (6, 3), (5, 4)], (False, True)):
        log_probs = log_probs_of(steps, labels, 1)
        search = native.PrefixSearch(labels, 0, 10_000, math.inf, add)
        for row in log_probs:  # in pieces
            search.feed(row.ctypes.data, 1, labels)
        expected = labellings(log_probs, add)
        found = search.best(10_000)
        checks.same("prefix search", {tuple(one[1]) for one in found}, set(expected))
        scores = np.array([one[0] for one in found])
        checks.close("prefix search", scores, np.array([expected[tuple(one[1])] for one in found]), SAME)
        checks.same("prefix search", list(scores), sorted(scores, reverse=True))


def check_alignment(native: Any, checks: Checks) -> None:
    """The best of all paths that read as a target."""
    for target in ([], [1], [1, 1], [2, 1, 2]):
        log_probs, given = log_probs_of(6, 3, 2), np.array(target, np.int64)
        path = np.full(6, -1, np.int32)
        score = native.ctc_align(log_probs.ctypes.data, 6, 3, 3, 0, given.ctypes.data, len(target), path.ctypes.data)
        rows = log_probs.astype(np.float64)
        checks.close("alignment", np.array(score), np.array(labellings(log_probs, False)[tuple(target)]), SAME)
        extended = [0] * (2 * len(target) + 1)
        extended[1::2] = target
        labels = [extended[state] for state in path]
        checks.same("alignment", reads(tuple(labels)), tuple(target))
        checks.close("alignment", rows[np.arange(6), labels].sum(), np.array(score), SAME)


def kneser_ney(texts: tuple[str, ...]) -> dict[tuple[str, ...], float]:
    """Interpolated bigram estimates with modified discounts (Chen & Goodman 1999): p of each bigram and unigram."""
    pairs: Counter[tuple[str, str]] = Counter()
    for text in texts:
        words = ["<s>", *text.split(), "</s>"]
        pairs.update(itertools.pairwise(words))
    before = Counter(word for _, word in pairs)  # in how many contexts a word occurs

    def cut(count: int) -> float:
        return DISCOUNTS[min(count, 3) - 1]

    known, all_of = len(before) + 1, sum(before.values())  # <unk> is one more word
    rest = sum(cut(count) for count in before.values()) / all_of
    p: dict[tuple[str, ...], float] = {(w,): (n - cut(n)) / all_of + rest / known for w, n in before.items()}
    for (context, word), count in pairs.items():
        of_context = {pair: n for pair, n in pairs.items() if pair[0] == context}
        total = sum(of_context.values())
        weight = sum(cut(n) for n in of_context.values()) / total
        p[context, word] = (count - cut(count)) / total + weight * p[(word,)]
    return p


def trained(native: Any, texts: tuple[str, ...]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        trainer = native.KneserNey(2, [0, 0], 1 << 24, folder, 1)
        trainer.feed(("\n".join(texts) + "\n").encode())
        trainer.adjust()
        trainer.estimate([list(DISCOUNTS), list(DISCOUNTS)])
        return trainer.model()


def arpa_of(native: Any, model: Any) -> bytes:
    writer, pieces = native.ArpaWriter(model), list[bytes]()
    while piece := writer.next():
        pieces.append(piece)
    return b"".join(pieces)


def check_ngrams(native: Any, checks: Checks) -> Any:
    """Estimates, the file they are written to and read from, a mixture, scores of a text; returns the model."""
    expected, model = kneser_ney(TEXT), trained(native, TEXT)
    for order in (1, 2):
        found = {tuple(map(model.word, numbers)): prob for numbers, prob, _ in model.ngrams(order)}
        stored = [key for key in expected if len(key) == order]
        checks.same("n-grams", set(found) - {("<s>",), ("<unk>",)}, set(stored))
        probs = np.array([found[key] for key in stored])
        checks.close("n-grams", probs, np.log10([expected[key] for key in stored]), 1e-6)
    reader = native.ArpaReader(1000)
    reader.feed(arpa_of(native, model))
    read = reader.finish()
    for state in {model.start(), *(model.score(model.start(), model.find(word))[1] for word in WORDS)}:
        scores = [model.score(state, model.find(word))[0] for word in (*WORDS, "</s>", "<unk>")]
        checks.close("n-grams", np.sum(np.exp(scores)), np.array(1.0), 1e-5)
    for one in (read, native.mix_ngrams([model, read], [0.3, 0.7])):
        for text in TEXT:
            theirs, ours = (np.frombuffer(of.score_text(text.encode())[0], np.float32) for of in (model, one))
            checks.close("n-grams, read and mixed", ours, theirs.astype(np.float64), 1e-5)
    return model


def sentences(letters: str) -> list[tuple[str, ...]]:
    """Every way to cut letters into words."""
    if not letters:
        return [()]
    starts = [word for word in WORDS if letters.startswith(word)]
    return [(word, *rest) for word in starts for rest in sentences(letters[len(word) :])]


def check_dictionary_search(native: Any, checks: Checks, model: Any) -> None:
    """The best sentence of all, with and without a language model; several searches at once find the same."""
    spelt = np.array([LETTERS.index(letter) + 1 for word in WORDS for letter in word], np.int32)
    starts = np.cumsum([0, *map(len, WORDS)], dtype=np.int64)
    order = np.arange(len(WORDS), dtype=np.int32)
    where = [one.ctypes.data for one in (spelt, starts, order)]
    lexicon = native.make_lexicon(*where, len(WORDS), False)
    uniform = math.log(1 / 7)

    def ngram(words: tuple[str, ...]) -> float:
        state, total = model.start(), 0.0
        for word in words:
            score, state = model.score(state, model.find(word))
            total += score
        return total + float(model.finish(state))

    models = (
        (None, lambda words: 0.0),
        (native.uniform_word_model(7), lambda words: (len(words) + 1) * uniform),
        (native.ngram_word_model(model), ngram),
    )
    for (lm, score_of), add in itertools.product(models, (False, True)):
        options = native.DictionaryOptions()
        options.labels, options.blank, options.beam, options.margin = 3, 0, 10_000, math.inf
        options.sum, options.recombine, options.word_bonus = add, False, 0.4
        options.lm_weight = 0.0 if lm is None else 0.8
        dictionary = native.make_dictionary(lexicon, lm, list(WORDS))
        given = [log_probs_of(steps, 3, seed) for steps in (3, 5, 6) for seed in (3, 4)]
        searches = [native.DictionarySearch(dictionary, options) for _ in given]
        native.feed_all(searches, [(one.ctypes.data, *one.shape) for one in given], 2)
        for search, log_probs in zip(searches, given, strict=True):
            expected = {
                words: score + options.lm_weight * score_of(words) + 0.4 * len(words)
                for labels, score in labellings(log_probs, add).items()
                for words in sentences("".join(LETTERS[label - 1] for label in labels))
            }
            best = max(expected, key=lambda words: expected[words])
            score, complete, *_, numbers, _ = search.best(1)[0]
            words = tuple(WORDS[number] for number in numbers)
            # letters that can be cut in two ways are equally good without a language model
            tied = words in expected and expected[best] - expected[words] < 1e-12
            checks.same("dictionary search", (complete, words), (True, words if tied else best))
            checks.close("dictionary search", np.array(score), np.array(expected[best]), 1e-6)


def check_lines(native: Any, checks: Checks, wheel: Path) -> None:
    """Pictures of lines changed by chance: the pixels of the wheel's own Python, which uses Pillow and NumPy."""
    sys.path.insert(0, str(wheel))
    from unrolled.data.batching.seeds import ExampleSeeds
    from unrolled.data.signals.augment import LineChanges, changed_line

    off = dict.fromkeys(("warp", "slant", "width", "thickness", "blur", "noise"), 0.0)
    changes = [LineChanges(), LineChanges(thickness=1, blur=1, noise=1), LineChanges(**{**off, "noise": 1.0})]
    for high, change in itertools.product((1, 24, 31, 65), changes):
        draw = np.random.default_rng(high)
        lines = [draw.integers(0, 256, (wide, high), dtype=np.uint8) for wide in (1, 90, 33)]
        seeds, lengths = ExampleSeeds(high, 3, len(lines)), np.zeros(len(lines), np.int64)
        strengths = [getattr(change, name) for name in off]
        got = native.change_lines(lines, seeds.states(range(len(lines))), lengths, *strengths, 255.0)
        for number, line in enumerate(lines):
            wanted = changed_line(line, change, np.random.default_rng((high, 3, number)))
            checks.same("changed lines", lengths[number], len(wanted))
            checks.close("changed lines", got[number, : len(wanted)] * 255, wanted.astype(np.float64), 1e-6)
            checks.close("changed lines", got[number, : len(wanted)], wanted.astype(np.float32) / np.float32(255), 0.0)
