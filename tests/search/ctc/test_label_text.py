"""Labels of several letters are written with spaces between, everywhere."""

from __future__ import annotations

import itertools

import pytest
import torch

from unrolled.errors import UserError
from unrolled.metrics.phones import are_phones
from unrolled.metrics.recognition import reference_kind, symbol_error_rate
from unrolled.search import Decoder, decode
from unrolled.search.ctc.label_text import are_symbols

PHONES = ["-", "D", "AO", "G", "K"]


def frames(path: list[int], labels: int = 5) -> torch.Tensor:
    return torch.eye(labels)[path].mul(9).log_softmax(-1)


def test_phones_have_spaces_between_and_letters_have_none() -> None:
    (found,) = decode(frames([1, 2, 2, 0, 3]), PHONES)
    assert found.text == "D AO G"
    assert [word[:3] for word in found.words] == [("D", 0, 1), ("AO", 1, 3), ("G", 4, 5)]
    assert decode(frames([1, 2, 3], 4), ["-", "d", "o", "g"])[0].text == "dog"
    names = ["<pad>", "<s>", "[UNK]", "a", "b"]  # letters beside special labels, as Hugging Face has them
    assert decode(frames([3, 4]), names, blank="<pad>")[0].text == "ab"
    assert decode(frames([1, 3, 2]), PHONES, symbols=False)[0].text == "DGAO"


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_unknown_words_and_words_between_separators(backend: str) -> None:
    open_words = Decoder(PHONES, {"dog": [["D", "AO", "G"]]}, unknown_penalty=-1.0, word_bonus=0.5, backend=backend)
    (found,) = open_words.decode(frames([1, 2, 3, 1, 2, 4]))
    assert [(word.text, word.known) for word in found.words] == [("dog", True), ("D AO K", False)]
    assert found.text == "dog D AO K"
    (found,) = Decoder([*PHONES, "|"], separator="|", backend=backend).decode(frames([1, 2, 5, 3], 6))
    assert [word.text for word in found.words] == ["D AO", "G"]


def test_the_blank_is_no_symbol() -> None:
    assert not are_symbols(["blank", "a", "b"], 0)
    assert are_symbols(["blank", "a", "b"], 1)


def edits(found: list[str], truth: list[str]) -> int:
    """Levenshtein's distance, written out."""
    row = list(range(len(found) + 1))
    for i, wanted in enumerate(truth, 1):
        previous, row[0] = row[0], i
        for j, got in enumerate(found, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (got != wanted))
    return row[-1]


def test_the_error_rate_of_symbols_counts_edits() -> None:
    texts = [" ".join(one) for length in (1, 2, 3) for one in itertools.product(["D", "AO"], repeat=length)]
    pairs = list(itertools.product(texts, texts))
    outputs, references = [a for a, _ in pairs], [b for _, b in pairs]
    wrong = sum(edits(a.split(), b.split()) for a, b in pairs)
    assert symbol_error_rate(outputs, references) == pytest.approx(wrong / sum(len(b.split()) for b in references))
    assert symbol_error_rate([], []) == 0


def test_references_are_told_apart() -> None:
    labels, words = {"D", "AO", "G", "a"}, {"dog", "a", "man"}
    assert reference_kind(["D AO G", "G ZH"], labels, words) == "labels"
    assert reference_kind(["a dog", "man"], labels, words) == "words"
    assert reference_kind(["a"], labels, words, "words") == "words"
    with pytest.raises(UserError) as error:
        reference_kind(["a", "cat"], labels, words)
    assert str(error.value) == (
        "The references may be labels or words: of their 2 parts 1 are labels and 1 are words of the lexicon. "
        "Say what they are: --reference-kind words or --reference-kind labels."
    )


def test_phones_are_known_by_name() -> None:
    assert are_phones(["SIL", "AH0", "B", "h#"])
    assert not are_phones(["a", "b", "æ", "ø", "d", "e", "f", "g", "h"])  # letters of Danish
    assert not are_phones(["b", "d", "g"])
    assert not are_phones(["sil"])
