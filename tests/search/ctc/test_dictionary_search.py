"""Dictionary search: every sentence scored by brute force, C++ against Python, streams, limits, bad input."""

from __future__ import annotations

import itertools
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search.ctc.exhaustive import Sentences, log_probs_of
from unrolled.errors import Note, UserError
from unrolled.kernels import ENGINES
from unrolled.nn import ctc_align
from unrolled.search import Lexicon
from unrolled.search.ctc import Decoder, decode
from unrolled.search.ngram import NGram

BACKENDS = ["reference", *(["native"] if "native" in ENGINES else [])]
native_only = pytest.mark.skipif("native" not in ENGINES, reason="the native engine is not built")

LABELS = ["-", "a", "b", "|"]
# several spellings of a word, several words of a spelling, words that begin others, doubled letters
SPELLINGS = {"A": ["a"], "AB": ["ab", "aab"], "B": ["b", "bb"], "BEE": ["b"], "ABBA": ["abba"]}
TEXT = ["A B AB", "AB A", "BEE A ABBA", "B B A", "A BEE AB", "ABBA B", "A A AB B"]


def trained(text: list[str], order: int, backend: str = "auto") -> NGram:
    with warnings.catch_warnings(action="ignore", category=Note):  # the text is too small for estimated discounts
        return NGram.train(text, order=order, backend=backend)  # type: ignore[arg-type]


def pairs(spellings: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(word, spelling) for word, several in spellings.items() for spelling in several]


@pytest.mark.parametrize("share_ends", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("merge", ["max", "sum"])
@pytest.mark.parametrize("separator", [None, "|"])
@pytest.mark.parametrize("unknown_penalty", [None, -1.5])
@pytest.mark.parametrize("with_lm", [False, True])
def test_scores_every_sentence(
    share_ends: bool, backend: str, merge: str, separator: str | None, unknown_penalty: float | None, with_lm: bool
) -> None:
    lm = trained(TEXT, 3, backend) if with_lm else None
    labels = LABELS if separator else LABELS[:3]
    log_probs = log_probs_of(5 if separator else 6, len(labels), scale=2.0)
    rest: dict[str, Any] = {"word_bonus": 0.7, "unknown_penalty": unknown_penalty, "lm_weight": 0.8}
    truth = Sentences(labels, pairs(SPELLINGS), separator=separator, add=merge == "sum", lm=lm, **rest)
    expected = truth.best(log_probs)
    decoder = Decoder(
        labels,
        Lexicon(SPELLINGS, labels, share_ends=share_ends),
        lm,
        separator=separator,
        merge=merge,
        beam=10**6,
        margin=math.inf,
        backend=backend,
        **rest,
    )
    found = decoder.decode(log_probs, n_best=10**6)
    assert [one.score for one in found] == pytest.approx([score for score, _ in expected], abs=1e-4)
    scores = {words: score for score, words in reversed(expected)}
    for one in found:
        assert one.complete
        assert scores[tuple(word.text for word in one.words)] == pytest.approx(one.score, abs=1e-4)
    if merge == "max":
        (best,) = decoder.decode(log_probs)  # recombined
        assert best.score == pytest.approx(expected[0][0], abs=1e-4)
        assert scores[tuple(word.text for word in best.words)] == pytest.approx(expected[0][0], abs=1e-4)


@native_only
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_native_equals_plain(data: st.DataObject) -> None:
    """Under every limit, to the bit, with the tree and the automaton: words, times, scores, and the order of ties."""
    torch.manual_seed(data.draw(st.integers(0, 2**32)))
    labels = list("-abc|")
    letters = st.text("abc", min_size=1, max_size=4)
    words = data.draw(
        st.dictionaries(
            st.text("ABC", min_size=1, max_size=3),
            st.lists(letters, min_size=1, max_size=3, unique=True),
            min_size=1,
            max_size=8,
        )
    )
    log_probs = log_probs_of(data.draw(st.integers(0, 20)), 5, scale=data.draw(st.sampled_from([0.0, 1.0, 4.0])))
    if data.draw(st.booleans()):  # many exact ties
        log_probs = log_probs.round().log_softmax(-1)
    if data.draw(st.booleans()):
        log_probs[torch.rand(log_probs.shape) < 0.1] = -torch.inf
        log_probs = log_probs.log_softmax(-1).nan_to_num(nan=-math.log(5))
    sentences = data.draw(
        st.lists(st.lists(st.sampled_from([*words, "Z"]), min_size=1, max_size=4), min_size=3, max_size=6)
    )
    lm = (
        NGram.train([" ".join(s) for s in [*sentences, *TEXT]], order=data.draw(st.integers(1, 3)))
        if data.draw(st.booleans())
        else None
    )
    options = {
        "beam": data.draw(st.integers(1, 30)),
        "per_node": data.draw(st.sampled_from([None, 1, 2])),
        "margin": data.draw(st.sampled_from([None, 2.0, 8.0, math.inf])),
        "merge": data.draw(st.sampled_from(["max", "sum"])),
        "recombine": data.draw(st.sampled_from([None, True, False])),
        "look_ahead": data.draw(st.booleans()),
        "lm_weight": data.draw(st.sampled_from([0.0, 0.5, 0.7, 2.0])),
        "word_bonus": data.draw(st.sampled_from([-1.0, 0.0, 0.3, 1.5])),
        "unknown_penalty": data.draw(st.sampled_from([None, -3.0, 0.5])),
        "separator": data.draw(st.sampled_from([None, "|"])),
    }
    n_best = data.draw(st.integers(1, 5))
    tree, *others = (
        Decoder(labels, Lexicon(words, labels, share_ends=shared), lm, backend=backend, **options).decode(  # type: ignore[arg-type]
            log_probs, n_best
        )
        for backend in ("reference", "native")
        for shared in (False, True)
    )
    for other in others:
        assert other == tree


@native_only
def test_the_automaton_is_smaller_and_finds_every_word() -> None:
    """Stems with the same endings, each word under a beam of one path: the word is found from the path alone."""
    stems = ["".join(letters) for letters in itertools.product("ab", repeat=5)]
    words = [stem + end for stem in stems for end in ("", "c", "ca", "cab", "d")]
    labels = list("-abcd")
    tree, automaton = (Lexicon(words, labels, share_ends=shared) for shared in (False, True))
    assert automaton._native_graph.size() == automaton.graph.size
    assert tree._native_graph.size() == tree.graph.size
    assert automaton._native_graph.bytes() < tree._native_graph.bytes() / 2
    lm = trained([" ".join(words)] * 2, 2)
    decoder = Decoder(labels, automaton, lm, lm_weight=0.1)
    for word in words:
        path = [number for letter in word for number in (labels.index(letter), 0)]
        assert decoder.decode(torch.eye(5)[path].mul(20).log_softmax(-1))[0].text == word


def test_equal_homophones_come_in_the_order_of_the_lexicon() -> None:
    frames = torch.zeros(1, 4).log_softmax(-1)
    for names in itertools.permutations(["one", "won", "wun"]):
        lexicon = Lexicon({name: ["a"] for name in names}, LABELS)
        for backend in BACKENDS:
            found = Decoder(LABELS, lexicon, per_node=2, word_bonus=1.0, backend=backend).decode(frames, n_best=3)
            assert [one.text for one in found] == [*names[:2], ""]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("separator", [None, "|"])
def test_times_are_those_of_the_best_path(backend: str, separator: str | None) -> None:
    log_probs = log_probs_of(14, 4, scale=3.0)
    lexicon = Lexicon(SPELLINGS, LABELS)
    (found,) = Decoder(LABELS, lexicon, separator=separator, beam=2000, margin=math.inf, backend=backend).decode(
        log_probs
    )
    assert found.words
    for word, after in itertools.pairwise(found.words):
        assert word.start < word.end <= after.start
    if separator is None:
        aligned = ctc_align(log_probs, found.labels)
        assert found.spans == aligned.spans
        assert found.score == pytest.approx(aligned.log_prob, abs=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_how_frames_are_cut_changes_nothing(backend: str) -> None:
    lm = trained(TEXT, 2, backend)
    log_probs = log_probs_of(60, 4, scale=2.0)
    decoder = Decoder(
        LABELS, Lexicon(SPELLINGS, LABELS), lm, separator="|", beam=20, unknown_penalty=-4, backend=backend
    )
    whole = decoder.decode(log_probs, n_best=4)
    for cuts in ([0, 1, 2, 60], [0, 0, 17, 59, 60], list(range(61))):
        stream = decoder.stream(n_best=4)
        for start, end in itertools.pairwise(cuts):
            stream.feed(log_probs[start:end])
            assert stream.best()  # asking changes nothing either
        assert stream.best(4) == whole


@native_only
def test_records_that_nobody_needs_are_dropped() -> None:
    """Long enough that memory is tidied up several times; the result is as before."""
    log_probs = log_probs_of(3000, 4, scale=1.0)
    decoder = Decoder(LABELS, Lexicon(SPELLINGS, LABELS), separator="|", beam=100, unknown_penalty=-1.0)
    (found,) = decoder.decode(log_probs)
    assert all(start < end for start, end in found.spans)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(found.spans))
    for label, (start, end) in zip(found.labels, found.spans, strict=True):
        assert end - start >= 1
        assert LABELS[label] in "ab"
    again = Decoder(LABELS, Lexicon(SPELLINGS, LABELS), separator="|", beam=5, unknown_penalty=-1.0)
    plain = Decoder(
        LABELS, Lexicon(SPELLINGS, LABELS), separator="|", beam=5, unknown_penalty=-1.0, backend="reference"
    )
    assert again.decode(log_probs[:600]) == plain.decode(log_probs[:600])


@pytest.mark.parametrize("backend", BACKENDS)
def test_batches_equal_single_ones(backend: str) -> None:
    decoder = Decoder(LABELS, ["ab", "ba", "b"], beam=10, backend=backend)
    rows = [log_probs_of(length, 4) for length in (9, 0, 4, 12)]
    batch = decoder.decode_batch(rows, n_best=2)
    assert batch == [decoder.decode(row, n_best=2) for row in rows]
    padded = torch.full((4, 12, 4), torch.nan)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    assert decoder.decode_batch(padded, n_best=2, lengths=[9, 0, 4, 12]) == batch


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_lexicon_can_be_changed_for_one_request(backend: str) -> None:
    frames = torch.eye(4)[[1, 0, 2, 2]].mul(6).log_softmax(-1)
    decoder = Decoder(LABELS, ["ba"], backend=backend)
    assert decoder.decode(frames, lexicon=["ab", "b"])[0].text == "ab"
    assert decoder.decode(frames, lexicon=Lexicon({"Abe": ["ab"]}, LABELS))[0].text == "Abe"
    assert decoder.decode(frames)[0].text == "ba"


@pytest.mark.parametrize("backend", BACKENDS)
def test_frames_that_end_inside_a_word(backend: str) -> None:
    frames = torch.eye(4)[[1, 2]].log()
    (found,) = Decoder(LABELS, ["abb"], backend=backend).decode(frames)  # needs four frames
    assert not found.complete
    assert found.text == ""
    assert found.labels == [1, 2]
    (empty,) = Decoder(LABELS, ["abb"], backend=backend).decode(torch.zeros(0, 4))
    assert empty.complete
    assert empty.text == ""


@pytest.mark.parametrize("backend", BACKENDS)
def test_unknown_words_are_spelt(backend: str) -> None:
    frames = torch.eye(4)[[1, 2, 3, 2, 0, 2]].mul(9).log_softmax(-1)
    open_one = Decoder(LABELS, ["ab"], separator="|", unknown_penalty=-2.0, backend=backend)
    (found,) = open_one.decode(frames)
    assert [(word.text, word.start, word.end, word.known) for word in found.words] == [
        ("ab", 0, 2, True),
        ("bb", 3, 6, False),
    ]
    closed = Decoder(LABELS, ["ab"], separator="|", backend=backend)
    assert all(word.known for word in closed.decode(frames)[0].words)


def test_dog_bites_man() -> None:
    """Lecture C: the sounds say 'dock buys man', the language model knows better."""
    phones = ["-", "D", "AO", "G", "K", "B", "AY", "T", "S", "Z", "M", "AE", "N"]
    lexicon = Lexicon(
        {
            "dog": [["D", "AO", "G"]],
            "dock": [["D", "AO", "K"]],
            "bites": [["B", "AY", "T", "S"]],
            "buys": [["B", "AY", "Z"]],
            "man": [["M", "AE", "N"]],
        },
        phones,
    )
    heard = [("D",), ("AO",), ("K", "G"), ("B",), ("AY",), ("-", "T"), ("Z", "S"), ("M",), ("AE",), ("N",)]
    probs = torch.full((len(heard), len(phones)), 0.002)
    for frame, best in zip(probs, heard, strict=True):
        for label, probability in zip(best, (0.55, 0.40), strict=False):
            frame[phones.index(label)] = probability if len(best) > 1 else 0.97
    probs /= probs.sum(-1, keepdim=True)
    text = ["dog bites man"] * 3 + ["the man buys the dog", "dock the boat", "man bites dog"]
    for backend in BACKENDS:
        lm = trained(text, 2, backend)
        assert decode(probs, phones, lexicon, kind="probs", backend=backend)[0].text == "dock buys man"
        assert decode(probs, phones, lexicon, lm, kind="probs", backend=backend)[0].text == "dog bites man"
        narrow = decode(probs, phones, lexicon, lm, kind="probs", backend=backend, beam=1, look_ahead=False)
        assert narrow[0].text != "dog bites man"  # too narrow a beam has lost it


def test_lexicon_files(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("ab\n\nbee b b\nbee b\n  a  \n")
    assert Lexicon.read(path, LABELS).spellings() == [
        ("ab", ["a", "b"]),
        ("bee", ["b", "b"]),
        ("bee", ["b"]),
        ("a", ["a"]),
    ]
    path.write_text("ab\nab\nax\nab a b\n")
    with pytest.warns(Note) as notes:
        assert len(Lexicon.read(path, LABELS, skip_unspellable=True)) == 1
    assert [str(one.message) for one in notes] == [
        "1 words of the lexicon were left out: the model cannot spell them.",
        "2 lines of the lexicon were there already, and are left out.",
    ]
    with pytest.raises(UserError) as error:
        Lexicon.read(path, LABELS)
    assert str(error.value) == (
        f"{path}:3: The word 'ax' is spelt with 'x', which is no label or token of the model. "
        "Spell it with those it has, or leave such words out with skip_unspellable (--skip-unspellable)."
    )
    path.write_bytes(b"ab\n\xff\n")
    with pytest.raises(UserError, match=r"words.txt is not UTF-8. Convert it, for example with iconv."):
        Lexicon.read(path, LABELS)
    with pytest.raises(UserError, match=r"Cannot read .*nowhere: No such file or directory. Give a file"):
        Lexicon.read(tmp_path / "nowhere", LABELS)


PLAIN_LM = trained(["A B", "B A", "A A B"], 2, "reference")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Lexicon([], LABELS), "The lexicon has no words. Give at least one word that the labels can spell."),
        (
            lambda: Lexicon("ab", LABELS),
            "The lexicon is the text 'ab', expected a list of words. Lexicon.read reads a file.",
        ),
        (
            lambda: Lexicon({"x": [""]}, LABELS),
            "The word 'x' has an empty spelling. Every word needs a label at least.",
        ),
        (
            lambda: Lexicon(["a"], ["-", "a", "a"]),
            "The label 'a' is there twice. Name every column of the posteriors once.",
        ),
        (lambda: Decoder(LABELS, lm=PLAIN_LM), "A language model of words needs a lexicon. Give the words there are."),
        (lambda: Decoder(LABELS, ["a"], blank="_"), "The blank '_' is none of the labels. Labels: - a b |"),
        (lambda: Decoder(LABELS, ["a"], separator=7), "blank=7 is not one of the 4 labels. Use a number from 0 to 3."),
        (
            lambda: Decoder(LABELS, ["a", "b|"], separator="|"),
            "The word 'b|' is spelt with the separator '|'. Leave the separator out of spellings.",
        ),
        (
            lambda: Decoder(LABELS, ["a-b"]),
            "The word 'a-b' is spelt with the blank '-'. Leave the blank out of spellings.",
        ),
        (
            lambda: Decoder(LABELS, Lexicon(["a"], ["-", "a"])),
            "The lexicon was made for other labels. Make it with those of the decoder.",
        ),
        (lambda: Decoder(LABELS, ["a"], beem=3), None),
        (
            lambda: Decoder(LABELS, ["a"], per_node=0),
            "per_node=0 is not a whole number from 1 up. Use None for no limit.",
        ),
        (lambda: Decoder(LABELS, ["a"], lm_weight=-1), "lm_weight=-1 is not a number from 0 up."),
        (lambda: Decoder(LABELS, ["a"], word_bonus=math.inf), "word_bonus=inf is not a number."),
        (lambda: Decoder(LABELS, ["a"], merge="add"), "Unknown merge 'add'. Choices: max, sum."),
        (lambda: Decoder(LABELS).stream(), "A stream needs a lexicon. Give the decoder one, or decode whole matrices."),
        (
            lambda: Decoder(LABELS, ["a"]).decode(torch.zeros(2, 3)),
            "posteriors has 3 columns, but there are 4 labels. Name one label for each column, the blank included.",
        ),
        (
            lambda: Decoder(LABELS, ["a"]).decode_batch([torch.zeros(0, 4), torch.zeros(2, 4)]),
            "posteriors[1] are not log-probabilities: the exponentials of row 0 add up to 4, so they look like logits. "
            "Take log_softmax of logits and the logarithm of probabilities, or say kind='logits' (--kind logits) or "
            "kind='probs' (--kind probs).",
        ),
    ],
)
def test_bad_input(call: object, message: str | None) -> None:
    assert callable(call)
    with pytest.raises((UserError, TypeError)) as error:
        call()
    if message is None:
        assert "beem" in str(error.value)
        assert "beam" in str(error.value)
    else:
        assert str(error.value) == message


@native_only
def test_a_plain_model_and_a_native_search() -> None:
    with pytest.raises(UserError) as error:
        Decoder(LABELS, ["a"], PLAIN_LM)
    assert str(error.value) == (
        "The language model runs on the reference engine, the search on the native one. "
        "Load it with backend='native', or use backend='reference' for both."
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_usual_margin_holds_what_a_word_can_cost(backend: str) -> None:
    frames = torch.eye(4)[[1, 0, 2, 0, 2]].mul(12).log_softmax(-1)  # reads "abb", which is no word
    usual = Decoder(LABELS, ["aba"], backend=backend)
    assert usual.options.usual_margin == 30.0
    assert usual.decode(frames)[0].text == "aba"
    lm = trained(["aba aba"], 1, backend)
    strong = Decoder(LABELS, ["aba"], lm, lm_weight=50.0, word_bonus=-3.0, backend=backend)
    assert strong.options.usual_margin == 30.0 * 50 + 3
    assert Decoder(LABELS, ["aba"], unknown_penalty=-4.0, word_bonus=2.0).options.usual_margin == 16.0
