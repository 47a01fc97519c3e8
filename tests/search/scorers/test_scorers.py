"""Scorers of a user's own against exhaustive enumeration, in every search; the one of docs/scorers.md among them."""

from __future__ import annotations

import itertools
import math
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.compat.answers import answer
from tests.search.ctc.exhaustive import Sentences, labellings, log_probs_of, merge, paths, reads
from tests.search.toy import Markov
from unrolled import UserError, api
from unrolled.errors import Note
from unrolled.search import (
    Beam,
    Decoder,
    DictionaryScorer,
    Lexicon,
    Limits,
    NGram,
    NGramScorer,
    Ranking,
    Sampling,
    Scorer,
    WordTokens,
    beam_search,
    prefix_search,
    sample,
    score_targets,
)

V, START, END = 5, 0, 4
ROOT = Path(__file__).parents[3]
(BOOST, *_) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "scorers.md").read_text(), re.MULTILINE | re.DOTALL)
STORED = sorted((ROOT / "tests" / "compat").glob("*/*.safetensors"))


def documented() -> Any:
    """The class that docs/scorers.md shows."""
    names: dict[str, Any] = {}
    exec(BOOST, names)
    return names["Boost"]


class Pairs(Scorer):
    """A score, often above 0, for each pair of tokens in a row; at the end 0.3 for each token 1."""

    def __init__(self, table: Tensor) -> None:
        self.table = table  # (V, V)

    def initial(self, rows: int) -> Any:
        return torch.zeros(rows, dtype=torch.int64), torch.zeros(rows)

    def scores(self, state: tuple[Tensor, Tensor]) -> Tensor:
        return self.table[state[0]]

    def advance(self, state: Any, tokens: Tensor) -> Any:
        return tokens, state[1] + (tokens == 1)

    def final(self, state: tuple[Tensor, Tensor], totals: Tensor) -> Tensor:
        return totals + 0.3 * state[1]

    def by_hand(self, tokens: tuple[int, ...]) -> float:
        pairs = zip((0, *tokens), tokens, strict=False)
        return sum(float(self.table[a, b]) for a, b in pairs)


def outputs(most: int) -> list[tuple[int, ...]]:
    inner = [token for token in range(V) if token != END]
    return [t for length in range(most) for t in itertools.product(inner, repeat=length)]


def model_log_prob(model: Markov, tokens: tuple[int, ...]) -> float:
    triples = zip((0, START, *tokens), (START, *tokens), tokens, strict=False)
    return sum(float(model.table[a, b, c]) for a, b, c in triples)


def test_the_documented_scorer_is_short() -> None:
    lines = [line for line in BOOST[BOOST.index("class Boost") :].splitlines() if line.strip()]
    assert len(lines) <= 15


@pytest.mark.parametrize("ranking", [Ranking("none"), Ranking("average"), Ranking("gnmt", 0.7)], ids=str)
def test_beam_search_equals_enumeration(ranking: Ranking) -> None:
    model, pairs = Markov(torch.randn(V, V, V)), Pairs(torch.randn(V, V))
    boost = documented()([1, 3], V, 0.7)

    def boosted(tokens: tuple[int, ...]) -> float:
        total, state = 0.0, 0
        for token in tokens:
            total += 0.7 * (token == [1, 3][state])
            state = (state + 1 if token == [1, 3][state] else int(token == 1)) % 2
        return total

    limits = Limits(4, END, scorers=[pairs, boost])
    (result,) = beam_search(model, 1, limits, start=START, beam=Beam(V**4, n_best=20, ranking=ranking))
    expected = []
    for tokens in outputs(4):
        whole = (*tokens, END)
        own = model_log_prob(model, whole)
        total = own + pairs.by_hand(whole) + boosted(whole) + 0.3 * tokens.count(1)
        divisor = {"none": 1.0, "average": float(len(whole)), "gnmt": ((5 + len(whole)) / 6) ** 0.7}
        expected.append((total / divisor[ranking.length_penalty], tokens, own))
    expected = sorted(expected, reverse=True)[:20]
    assert [tuple(h.tokens) for h in result.hypotheses] == [tokens for _, tokens, _ in expected]
    assert [h.score for h in result.hypotheses] == pytest.approx([score for score, _, _ in expected], abs=1e-5)
    assert [h.log_prob for h in result.hypotheses] == pytest.approx([own for _, _, own in expected], abs=1e-5)
    targets = [h.tokens for h in result.hypotheses]
    scored = score_targets(model, targets, limits, start=START, ranking=ranking)
    assert [h.score for h in scored] == pytest.approx([h.score for h in result.hypotheses], abs=1e-5)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_rows_do_not_see_each_other_and_safe_stopping_waits(size: int) -> None:
    """A scorer that may raise scores has no bound: a safe search goes on to max_tokens and finds the same."""
    model, pairs, memory = Markov(torch.randn(V, V, V)), Pairs(torch.randn(V, V)), torch.arange(V)
    limits = Limits(8, END, scorers=[pairs])
    together = beam_search(model, V, limits, start=START, beam=Beam(size), memory=memory)
    if size > 1:
        assert len(model.batches) == 8
    for row in range(V):
        (alone,) = beam_search(model, 1, limits, start=START, beam=Beam(size), memory=memory[row : row + 1])
        assert alone == together[row]


def test_greedy_sampling_follows_model_and_scorer_in_any_batch() -> None:
    model, pairs = Markov(torch.randn(V, V, V)), Pairs(2 * torch.randn(V, V))
    prompts = [[1], [2, 3], [1, 1], [3, 2]]
    limits = Limits([5, 4, 3, 6], scorers=[pairs])
    found = sample(model, prompts, limits, sampling=Sampling(temperature=0))
    for row, (prompt, one) in enumerate(zip(prompts, found, strict=True)):
        text = [0, *prompt]
        for _ in range([5, 4, 3, 6][row]):
            text.append(int((model.table[text[-2], text[-1]] + pairs.table[text[-1]]).argmax()))
        assert one.tokens == text[1 + len(prompt) :]


@pytest.mark.parametrize("merging", ["sum", "max"])
def test_ctc_labels_equal_enumeration(merging: str) -> None:
    log_probs, pairs = log_probs_of(5, 4), Pairs(torch.randn(4, 4))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = prefix_search(log_probs, 10**6, merge=merging, margin=math.inf, n_best=10**6, scorers=[pairs])
    assert [str(one.message) for one in said if one.category is Note] == [
        "Scorers run in the Python search, which is slower than the C++ one."
    ]
    expected = sorted(
        (
            (score + pairs.by_hand(labels) + 0.3 * labels.count(1), labels)
            for score, labels in labellings(log_probs, 0, merging == "sum")
        ),
        reverse=True,
    )
    assert [tuple(one.labels) for one in found] == [labels for _, labels in expected]
    assert [one.score for one in found] == pytest.approx([score for score, _ in expected], abs=1e-4)


@pytest.mark.parametrize("separator", [None, " "])
def test_ctc_words_equal_enumeration(separator: str | None) -> None:
    labels, spelt = ["-", "a", "b", " "], [("x", "ab"), ("y", "a"), ("z", "ba")]
    log_probs, pairs = log_probs_of(5, 4), Pairs(torch.randn(4, 4))
    lexicon = Lexicon({word: [letters] for word, letters in spelt}, labels)
    options: dict[str, Any] = {"separator": separator, "beam": 10**6, "margin": math.inf, "backend": "reference"}
    found = Decoder(labels, lexicon, scorers=[pairs], **options).decode(log_probs, n_best=10**6)
    grammar = Sentences(labels, spelt, separator=separator)
    best: dict[tuple[str, ...], list[float]] = {}
    for path, score in paths(log_probs):
        read = reads(path, 0)
        letters = "".join(labels[label] for label in read)
        # a run of separators is one; those before the first word do not count
        kept = re.sub(" +", " ", letters.lstrip(" ")) if separator else letters
        seen = tuple(labels.index(letter) for letter in kept)
        for words in grammar.parses(letters):
            total = score + pairs.by_hand(seen) + 0.3 * seen.count(1)
            best.setdefault(tuple(word for word, _ in words), []).append(total)
    expected = sorted(((merge(scores, False), words) for words, scores in best.items()), reverse=True)
    assert [tuple(word.text for word in one.words) for one in found] == [words for _, words in expected]
    assert [one.score for one in found] == pytest.approx([score for score, _ in expected], abs=1e-4)


class Alphabetical:
    """A language model of words in Python: a word that comes before the last one costs 1 nat."""

    def initial(self) -> str:
        return ""

    def advance(self, state: str, word: str) -> tuple[float, str]:
        return -1.0 * (word < state), word

    def final(self, state: str) -> float:
        return -0.5 * (state == "")


def test_a_word_model_of_ones_own() -> None:
    labels, spelt = ["-", "a", "b", "c"], [("a", "a"), ("b", "b"), ("cc", "c")]
    log_probs = log_probs_of(4, 4)
    with pytest.warns(Note, match="This language model runs in the Python search"):
        decoder = Decoder(labels, [word[0] for word in spelt], Alphabetical(), beam=10**6, margin=math.inf)
    found = decoder.decode(log_probs, n_best=10**6)
    plain = Decoder(labels, [word[0] for word in spelt], beam=10**6, margin=math.inf).decode(log_probs, n_best=10**6)

    def cost(text: str) -> float:
        words = text.split()
        return sum(b < a for a, b in itertools.pairwise(words)) + 0.5 * (not words)

    expected = {one.text: one.score - cost(one.text) for one in plain}
    assert {one.text: one.score for one in found} == pytest.approx(expected, abs=1e-4)


def test_scorers_that_the_native_search_cannot_take() -> None:
    with pytest.raises(UserError) as error:
        Decoder(["-", "a"], scorers=[Scorer()], backend="native")
    assert str(error.value) == "Scorers run in the Python search alone. Use backend='auto' or 'reference'."
    with pytest.raises(UserError) as error:
        beam_search(Markov(torch.zeros(V, V)), 1, Limits(3, END, scorers=[Pairs(torch.zeros(V, 3))]), start=START)
    assert str(error.value) == "Pairs.scores gave shape (1, 3) for 1 hypotheses and 5 tokens. Return (1, 5) or (5,)."


def test_ngram_and_lexicon_are_scorers() -> None:
    names = ["a", "b", "c", " ", "<eos>"]
    model = Markov(torch.randn(V, V, V))
    lm = NGram.train(["a b", "b a c", "a a"], order=2)
    words = Lexicon(["ab", "b", "ca"], names)
    scorers = [
        NGramScorer(lm, names, weight=0.5, end=END),
        DictionaryScorer(words, tokens=WordTokens(END, [3], required=True)),
    ]
    limits = Limits(5, END, scorers=scorers)
    (result,) = beam_search(model, 1, limits, start=START, beam=Beam(V**4, n_best=9, ranking=Ranking("none")))
    expected = []
    for tokens in outputs(5):
        text = "".join(names[token] for token in tokens)
        if all(word in ("", "ab", "b", "ca") for word in text.split(" ")):
            score = model_log_prob(model, (*tokens, END)) + 0.5 * lm.score([names[token] for token in tokens])
            expected.append((score, tokens))
    expected = sorted(expected, reverse=True)[:9]
    assert [tuple(h.tokens) for h in result.hypotheses] == [tokens for _, tokens in expected]
    assert [h.score for h in result.hypotheses] == pytest.approx([score for score, _ in expected], abs=1e-4)


@pytest.mark.parametrize("task", ["translate", "generate", "caption", "recognize"])
def test_predict_takes_scorers(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A strong bonus decides the first token of every task's output."""
    path = next(path for path in STORED if path.stem.split("-")[0] == task)
    model = api.load(path)
    assets: Any = model.assets
    if task == "recognize":
        names: list[str] = list(assets.labels.names)
    else:
        tokenizer = assets if task == "generate" else assets.target.tokenizer
        names = [tokenizer.piece(number, None).decode("utf-8", "replace") for number in range(len(tokenizer))]
    token = next(i for i, name in reversed(list(enumerate(names))) if name.strip().isalnum())
    boost = documented()([token, token], len(names), 100.0)
    predict = type(model).predict

    def boosted(self: Any, inputs: Any, **options: Any) -> Any:
        return predict(self, inputs, **options, scorers=[boost])

    plain = answer(model, path.stem, path.parent)
    monkeypatch.setattr(type(model), "predict", boosted)
    assert answer(model, path.stem, path.parent) != plain
