"""Keeping to a list of words: by its definition on every text of a few tokens, and inside `generate`."""

from __future__ import annotations

import itertools
import re

import pytest
import torch

from tests.search.toy import Fixed, Markov, Prefilled
from unrolled.errors import UserError
from unrolled.search import Beam, Limits, Sampling, WordList, beam_search, generate, sample, select

WORDS = ["ab", "abba", "b", "a'b"]
PIECES = ["a", "b", "'", " ", "ab", "b a", ".", "", "<eos>"]
END = 8


def is_allowed(text: str, ended: bool) -> bool:
    """Every word but the last is of the list, and the last begins one; it is whole where the text has ended."""
    *whole, last = re.split(r"[ .]", text)
    fine = all(word == "" or word in WORDS for word in whole)
    return fine and (last in (*WORDS, "") if ended else any(word.startswith(last) for word in WORDS))


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_allows_what_can_become_words_of_the_list(length: int) -> None:
    words = WordList(WORDS, PIECES, ends=[END])
    for tokens in itertools.product(range(6), repeat=length - 1):
        text, state, fine = "", words.initial(1), True
        for token in tokens:
            fine = fine and bool(words.scores(state)[0, token])
            state = words.advance(state, torch.tensor([token]))
            text += PIECES[token]
            assert fine == is_allowed(text, ended=False)
        if fine:
            expected = [
                is_allowed(text + (piece if token != END else ""), ended=token == END) and piece != ""
                for token, piece in enumerate(PIECES)
            ]
            assert words.scores(state)[0].tolist() == expected


def test_rows_are_told_apart_and_reordered() -> None:
    words = WordList(WORDS, PIECES, ends=[END])
    state = words.advance(words.initial(3), torch.tensor([0, 1, 3]))
    masks = words.scores(state)
    assert masks[:, 3].tolist() == [False, True, True]
    moved = select(state, torch.tensor([2, 0, 0]))
    assert torch.equal(words.scores(moved), masks[[2, 0, 0]])


def test_a_word_that_was_begun_before_can_only_end() -> None:
    words = WordList(WORDS, PIECES, ends=[END])
    state = words.initial(1)
    for token in (0, 0):  # "aa" begins no word of the list
        state = words.advance(state, torch.tensor([token]))
    assert [PIECES[i] for i in words.scores(state)[0].nonzero().flatten().tolist()] == [" ", ".", "<eos>"]


def test_tokens_that_are_words() -> None:
    pieces = ["Dog", "bites", "man", "dogs", ",", "\n"]
    words = WordList(["dog", "man"], pieces, ignore_case=True, joined=False)
    state = words.advance(words.initial(1), torch.tensor([0]))
    assert words.scores(state)[0].tolist() == [True, False, True, False, True, True]


@pytest.mark.parametrize("model", [Markov, Prefilled])
def test_generate_keeps_to_the_list(model: type[Markov]) -> None:
    table = torch.randn(len(PIECES), len(PIECES), len(PIECES))
    words = WordList(WORDS, PIECES, ends=[END])
    prompts = [[3], [0], [3, 1, 3, 0], [1, 0, 0]]  # of several lengths, some inside a word
    found = sample(model(table), prompts, Limits(max_tokens=30, end=END, scorers=[words]), seeds=5)
    for prompt, one in zip(prompts, found, strict=True):
        text = "".join(PIECES[token] for token in [*prompt, *one.tokens])
        assert is_allowed(text.removeprefix("baa"), ended=one.stopped_by == "end")
        alone = sample(
            model(table), [prompt], Limits(max_tokens=30, end=END, scorers=[words]), seeds=5 + prompts.index(prompt)
        )
        assert alone == [one]
    free = sample(model(table), prompts, Limits(max_tokens=30, end=END), seeds=5)
    assert any(
        not is_allowed("".join(PIECES[token] for token in one.tokens), ended=False) for one in free
    )  # the model alone would not


def test_beam_search_keeps_to_the_list() -> None:
    table = torch.randn(len(PIECES), len(PIECES), len(PIECES))
    words = WordList(WORDS, PIECES, ends=[END])
    (found,) = beam_search(
        Markov(table), 1, Limits(end=END, max_tokens=12, scorers=[words]), start=3, beam=Beam(6, n_best=6)
    )
    assert found.hypotheses
    for one in found.hypotheses:
        assert is_allowed("".join(PIECES[token] for token in one.tokens if token != END), ended=one.ended)


def test_nothing_left_to_write() -> None:
    log_probs = torch.tensor([[0.0] + [-torch.inf] * (len(PIECES) - 1)])  # "a" for ever
    steps = generate(
        Fixed(log_probs),
        [[3]],
        Limits(max_tokens=5, scorers=[WordList(WORDS, PIECES)]),
        sampling=Sampling(temperature=0),
    )
    with pytest.raises(UserError, match=r"No token is left to choose for token 2 after prompts\[0\]"):
        list(steps)


def test_lists_without_a_use() -> None:
    with pytest.raises(UserError) as error:
        WordList(["", ""], PIECES)
    assert str(error.value) == "The list has no words. Give at least one word that may be written."
    with pytest.raises(UserError) as error:
        WordList(["xyz"], PIECES)
    assert str(error.value) == (
        "None of the 1 words can be written with the model's tokens. "
        "Check the words' letters, and whether the model knows capitals."
    )
