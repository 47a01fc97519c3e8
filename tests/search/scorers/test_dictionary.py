"""Dictionary search over tokens against every word sequence of small vocabularies."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.search.ctc.exhaustive import Sentences
from tests.search.toy import Markov
from unrolled import UserError
from unrolled.search import (
    Beam,
    DictionaryScorer,
    Lexicon,
    Limits,
    NGram,
    Ranking,
    TokenStep,
    WordTokens,
    WordWeights,
    beam_search,
    sample,
    score_targets,
)

LETTERS = ["a", "b", "c", " ", "<eos>"]
SEPARATOR, END = 3, 4
TEXTS = ["ab b", "b ba ab c", "a ab", "c c ab ba", "ba b"]


def random_spellings(generator: random.Random) -> list[tuple[str, str]]:
    """Words and their letters: some sound alike, some have two spellings, some begin others."""
    spellings = {"".join(generator.choices("abc", k=generator.randint(1, 3))) for _ in range(generator.randint(2, 7))}
    found = [(spelling, spelling) for spelling in sorted(spellings)]
    found += [("ab", generator.choice(sorted(spellings))), ("c", generator.choice(sorted(spellings)))]
    return sorted(set(found))


def lexicon_of(spellings: Sequence[tuple[str, str]], *, share_ends: bool = False) -> Lexicon:
    words: dict[str, list[str]] = {}
    for word, spelling in spellings:
        words.setdefault(word, []).append(spelling)
    return Lexicon(words, LETTERS, share_ends=share_ends)


def settings(trial: int) -> tuple[Sentences, DictionaryScorer, DictionaryScorer]:
    """The words of a trial: to enumerate, and as scorers with a tree and with an automaton."""
    generator = random.Random(trial)
    spellings, spaced = random_spellings(generator), generator.random() < 0.5
    lm = generator.choice([None, NGram.train(TEXTS, order=2), NGram.train(TEXTS, order=3)])
    weights = WordWeights(
        lm_weight=generator.choice([0.3, 1.0, 2.0]),
        word_bonus=generator.choice([0.0, 0.7, -1.0]),
        unknown_penalty=generator.choice([None, None, -2.0, 0.5]),
        look_ahead=generator.random() < 0.8,
    )
    letters = [0, 1, 2] if spaced else [0, 1, 2, SEPARATOR]
    unknown: Any = {"unknown_first": letters, "unknown_following": letters, "unknown_more": letters}
    tokens = WordTokens(END, [SEPARATOR] if spaced else [], spaced, **unknown)
    sentences = Sentences(
        LETTERS,
        spellings,
        separator=" " if spaced else None,
        lm=lm,
        lm_weight=weights.lm_weight,
        word_bonus=weights.word_bonus,
        unknown_penalty=weights.unknown_penalty,
    )
    tree, automaton = (lexicon_of(spellings, share_ends=one) for one in (False, True))
    return sentences, DictionaryScorer(tree, lm, tokens, weights), DictionaryScorer(automaton, lm, tokens, weights)


def longest(sentences: Sentences) -> int:
    """The most tokens of an output, its end counted: three words in both cases."""
    return 6 if sentences.separator else 5


def every_output(sentences: Sentences, model: Markov) -> dict[tuple[int, ...], tuple[float, list[Any]]]:
    """The score of every output by its best words, and all words with that score."""
    found = {}
    for length in range(longest(sentences)):
        for tokens in itertools.product(range(4), repeat=length):
            parses = list(sentences.parses("".join(LETTERS[token] for token in tokens)))
            if parses:
                added = [sentences.score(words) for words in parses]
                steps = zip((0, 0, *tokens), (0, *tokens), (*tokens, END), strict=False)
                own = sum(float(model.table[a, b, c]) for a, b, c in steps)
                best = [words for words, score in zip(parses, added, strict=True) if score > max(added) - 1e-9]
                found[tokens] = (own + max(added), best)
    return found


@pytest.mark.parametrize("trial", range(20))
def test_a_wide_beam_finds_what_enumeration_finds(trial: int) -> None:
    sentences, tree, automaton = settings(trial)
    model = Markov(torch.randn(5, 5, 5))
    expected = every_output(sentences, model)
    ranked = sorted(expected, key=lambda tokens: -expected[tokens][0])
    wanted = min(20, len(ranked))
    results = []
    for scorer in (tree, automaton):
        limits = Limits(longest(sentences), END, scorers=[scorer])
        (result,) = beam_search(model, 1, limits, start=0, beam=Beam(4**6, wanted, Ranking("none")))
        best = [expected[tokens][0] for tokens in ranked[:wanted]]
        assert [h.score for h in result.hypotheses] == pytest.approx(best, abs=1e-4)
        for one in result.hypotheses:
            words = scorer.parser.best_words(one.tokens, lambda ids: "".join(LETTERS[i] for i in ids))
            assert one.score == pytest.approx(expected[tuple(one.tokens)][0], abs=1e-4)
            assert tuple((word.text, word.known) for word in words) in expected[tuple(one.tokens)][1]
            for word in words:
                spelt = "".join(LETTERS[i] for i in one.tokens[word.start : word.end])
                assert (word.text, spelt) in sentences.spellings if word.known else word.text == spelt
        results.append([(h.tokens, h.score, h.log_prob) for h in result.hypotheses])
    assert results[0] == results[1]  # to the bit
    scored = score_targets(model, ranked[:5], Limits(end=END, scorers=[tree]), start=0, ranking=Ranking("none"))
    assert [one.score for one in scored] == pytest.approx([expected[t][0] for t in ranked[:5]], abs=1e-4)


@pytest.mark.parametrize("trial", range(20))
def test_the_readings_of_an_output_are_all_that_there_are(trial: int) -> None:
    """Words that sound alike, and words cut elsewhere: the best five readings of every output."""
    sentences, tree, automaton = settings(trial)
    for tokens in every_output(sentences, Markov(torch.randn(5, 5, 5))):
        text = "".join(LETTERS[token] for token in tokens)
        expected = sorted((sentences.score(words), words) for words in set(sentences.parses(text)))[::-1]
        for scorer in (tree, automaton):
            found = scorer.parser.readings(tokens, lambda ids: "".join(LETTERS[i] for i in ids), 5)
            assert [one.score for one in found] == pytest.approx([score for score, _ in expected[:5]], abs=1e-9)
            words = [tuple((word.text, word.known) for word in one.words) for one in found]
            assert len(set(words)) == len(words)
            scores = {words: score for score, words in expected}
            assert [scores[one] for one in words] == pytest.approx([one.score for one in found], abs=1e-9)


@pytest.mark.parametrize("trial", range(24))
def test_the_bound_is_one(trial: int) -> None:
    """No output scores more than the bound of any of its beginnings."""
    sentences, tree, _ = settings(trial)
    most = torch.tensor([5])
    for tokens in itertools.product(range(4), repeat=4):
        parses = list(sentences.parses("".join(LETTERS[token] for token in tokens)))
        if parses:
            best = max(map(sentences.score, parses))
            state = tree.initial(1)
            for token in tokens:
                total = torch.tensor([state[0].best], dtype=torch.float64)
                assert float(tree.bound(state, total, most)) >= best - 1e-9
                state = tree.advance(state, torch.tensor([token]))


def test_a_search_does_not_stop_before_a_bonus() -> None:
    """The end is likelier than any letter, but a word of two letters earns more than it costs."""
    table = torch.tensor([0.2, 0.2, 0.05, 0.05, 0.5]).log().expand(5, 5, 5)  # log 0.2 · 0.2 = -3.2
    for bonus, best in ((2.0, []), (5.0, [0, 1])):
        weights = WordWeights(word_bonus=bonus)
        scorer = DictionaryScorer(lexicon_of([("ab", "ab")]), tokens=WordTokens(END), weights=weights)
        limits = Limits(3, END, scorers=[scorer])
        (result,) = beam_search(Markov(table), 1, limits, start=0, beam=Beam(4, ranking=Ranking("none")))
        assert result.best.tokens == best


PHONES = ["<bos>", "<eos>", "D", "AO", "G", "K", "B", "AY", "T", "S", "Z", "M", "AE", "N"]
SAID = {
    "dog": [["D", "AO", "G"]],
    "dock": [["D", "AO", "K"]],
    "bites": [["B", "AY", "T", "S"]],
    "buys": [["B", "AY", "Z"]],
    "man": [["M", "AE", "N"]],
}


class Heard:
    """A decoder that has heard "dock buys man" a little more clearly than "dog bites man"."""

    def start(self, memory: Any) -> Any:
        return None

    def step(self, tokens: Tensor, state: Any) -> TokenStep:
        usual = {
            "<bos>": "D", "D": "AO", "G": "B", "K": "B", "B": "AY", "T": "S", "S": "M", "Z": "M", "M": "AE", "AE": "N",
            "N": "<eos>", "<eos>": "<eos>",
        }  # fmt: skip
        choices = {"AO": ("K", "G"), "AY": ("Z", "T")}
        probs = torch.full((len(tokens), len(PHONES)), 0.002)
        for row, token in zip(probs, tokens.tolist(), strict=True):
            name = PHONES[token]
            for sound, share in zip(choices.get(name, (usual.get(name),)), (0.55, 0.4), strict=False):
                row[PHONES.index(str(sound))] = share
        return TokenStep((probs / probs.sum(-1, keepdim=True)).log(), state)


@pytest.mark.parametrize("share_ends", [False, True])
def test_dog_bites_man(share_ends: bool) -> None:
    lexicon = Lexicon(SAID, PHONES, share_ends=share_ends)
    lm = NGram.train(["dog bites man"] * 3 + ["the man buys the dog", "dock the boat", "man bites dog"], order=2)
    heard = {}
    for name, model in (("lexicon", None), ("language model", lm)):
        scorer = DictionaryScorer(lexicon, model, WordTokens(end=1, ignored=[0]))
        limits = Limits(20, 1, scorers=[scorer])
        (result,) = beam_search(Heard(), 1, limits, start=0, beam=Beam(10, ranking=Ranking("none")))
        heard[name] = scorer.parser.best_words(result.best.tokens, str)
    assert [word.text for word in heard["lexicon"]] == ["dock", "buys", "man"]
    assert [word.text for word in heard["language model"]] == ["dog", "bites", "man"]
    assert [(word.start, word.end) for word in heard["language model"]] == [(0, 3), (3, 7), (7, 10)]


def allowed_by(scorer: DictionaryScorer, state: Any) -> list[int]:
    """The tokens that may follow a single hypothesis."""
    found: list[int] = np.flatnonzero(scorer.scores(state)[0] > -math.inf).tolist()
    return found


def test_words_that_follow_directly_may_be_spelt_differently() -> None:
    """As sub-words are: a blank belongs to the first token of a word, and a first word may lack it."""
    names = ["go", " go", " on", "ne", ".", "<eos>"]
    first = Lexicon({"go": [["go"], [" go"]], "gone": [["go", "ne"], [" go", "ne"]], "on": [[" on"]]}, names)
    later = Lexicon({"go": [[" go"]], "gone": [[" go", "ne"]], "on": [[" on"]]}, names)
    scorer = DictionaryScorer(first, tokens=WordTokens(5, [4], following=later))
    allowed = {}
    for text in ("", "go", "go| on", "go|.", " go|ne"):
        state = scorer.initial(1)
        for name in filter(None, text.split("|")):
            state = scorer.advance(state, torch.tensor([names.index(name)]))
        allowed[text] = [names[token] for token in allowed_by(scorer, state)]
    assert allowed == {
        "": ["go", " go", " on", ".", "<eos>"],
        "go": [" go", " on", "ne", ".", "<eos>"],
        "go| on": [" go", " on", ".", "<eos>"],
        "go|.": ["go", " go", " on", ".", "<eos>"],
        " go|ne": [" go", " on", ".", "<eos>"],
    }


def test_a_prompt_with_a_foreign_word() -> None:
    lm = NGram.train(TEXTS, order=2)
    scorer = DictionaryScorer(lexicon_of([("ab", "ab")]), lm, WordTokens(END, [SEPARATOR], True))
    state = scorer.initial(1)
    for token in (2, 2):  # "cc"
        state = scorer.advance(state, torch.tensor([token]))
    assert [LETTERS[token] for token in allowed_by(scorer, state)] == [" ", "<eos>"]
    state = scorer.advance(state, torch.tensor([SEPARATOR]))
    assert [LETTERS[token] for token in allowed_by(scorer, state)] == ["a", " ", "<eos>"]
    expected = lm.advance(lm.advance(lm.initial(), "<unk>")[1], "ab")[0]
    state = scorer.advance(scorer.advance(state, torch.tensor([0])), torch.tensor([1]))
    assert state[0].best == pytest.approx(expected)


def test_a_prefix_may_have_a_foreign_word() -> None:
    """It is written whole; words of the lexicon follow it."""
    lm = NGram.train(TEXTS, order=2)
    scorer = DictionaryScorer(lexicon_of([("ab", "ab")]), lm, WordTokens(END, [SEPARATOR], required=True))
    limits = Limits(8, END, min_tokens=6, prefixes=[[2, 2, 0]], scorers=[scorer])
    (result,) = beam_search(Markov(torch.randn(5, 5, 5)), 1, limits, start=0, beam=Beam(20, 5))
    for one in result.hypotheses:
        text = "".join(LETTERS[token] for token in one.tokens)
        assert text.startswith("cca")
        assert set(text.removeprefix("cca").split(" ")) <= {"", "ab"} or not one.ended


def test_blanks_stand_between_words_alone() -> None:
    scorer = DictionaryScorer(lexicon_of([("ab", "ab")]), tokens=WordTokens(END, [SEPARATOR], True, blanks=[SEPARATOR]))
    state, allowed = scorer.initial(1), []
    for token in (0, 1, SEPARATOR, 0):
        allowed.append("".join(LETTERS[one] for one in allowed_by(scorer, state)))
        state = scorer.advance(state, torch.tensor([token]))
    assert allowed == ["a<eos>", "b", " <eos>", "a"]


def test_a_line_is_a_sentence() -> None:
    """A break ends a sentence of the language model; an empty line says nothing."""
    lm = NGram.train(TEXTS, order=2)
    lexicon = lexicon_of([("ab", "ab"), ("b", "b")])
    scorer = DictionaryScorer(lexicon, lm, WordTokens(END, [SEPARATOR], required=True, breaks=[SEPARATOR]))
    state = scorer.initial(1)
    for token in (SEPARATOR, 0, 1, SEPARATOR, SEPARATOR, 1, END):
        state = scorer.advance(state, torch.tensor([token]))
    assert state[0].best == pytest.approx(lm.score("ab") + lm.score("b"))


def test_sampling_keeps_to_the_lexicon() -> None:
    scorer = DictionaryScorer(lexicon_of([("ab", "ab"), ("cab", "cab")]), tokens=WordTokens(END, [SEPARATOR], True))
    model = Markov(torch.randn(5, 5, 5))
    for one in sample(model, [[SEPARATOR]] * 20, Limits(30, END, scorers=[scorer]), seeds=3):
        *words, last = "".join(LETTERS[token] for token in one.tokens).split(" ")
        assert set(words) <= {"", "ab", "cab"}
        assert last in ("", "ab", "cab") if one.stopped_by == "end" else any(w.startswith(last) for w in ("ab", "cab"))


def test_limits_per_node_and_margin() -> None:
    """By hand: of two histories at the same node one stays; a hypothesis far below the best one goes."""
    spellings = [("a", "a"), ("b", "b"), ("cc", "cc")]
    scorer = DictionaryScorer(lexicon_of(spellings), tokens=WordTokens(END))
    table = torch.tensor([0.4, 0.3, 0.2, 0.05, 0.05]).log().expand(5, 5, 5)
    limits = Limits(3, END, min_tokens=2, scorers=[scorer])

    def kept(**options: Any) -> list[set[str]]:
        """The hypotheses in the beam after each token."""
        (found,) = beam_search(Markov(table), 1, limits, start=0, beam=Beam(8, **options), tree=True)
        assert found.tree is not None
        paths = [found.tree.path(i) for i, node in enumerate(found.tree.nodes) if node.fate == "continued"]
        return [{"".join(LETTERS[t] for t in path) for path in paths if len(path) == length} for length in (1, 2)]

    assert kept() == [{"a", "b", "c"}, {"aa", "ab", "ba", "ac", "bb", "bc", "cc"}]
    assert kept(per_node=1) == [{"a", "c"}, {"aa", "ac"}]
    assert kept(margin=0.5) == [{"a", "b"}, {"aa", "ab", "ba"}]
    with pytest.raises(UserError) as error:
        beam_search(Markov(table), 1, Limits(3, END), start=0, beam=Beam(2, per_node=1))
    assert str(error.value) == "per_node is for places of a lexicon, and there is none. Give a DictionaryScorer."
    with pytest.raises(UserError, match="margin=-1 is not a number from 0 up"):
        Beam(2, margin=-1)
    with pytest.raises(UserError, match="per_node=0 is not a whole number from 1 up"):
        Beam(2, per_node=0)
