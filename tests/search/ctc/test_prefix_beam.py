"""Best path and prefix beam search, against every path and against other decoders."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search.ctc.exhaustive import labellings, log_probs_of
from unrolled.errors import UserError
from unrolled.kernels import ENGINES
from unrolled.nn import ctc_loss
from unrolled.search.ctc import best_path, prefix_search

BACKENDS = ["reference", *(["native"] if "native" in ENGINES else [])]
native_only = pytest.mark.skipif("native" not in ENGINES, reason="the native engine is not built")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("merge", ["sum", "max"])
@pytest.mark.parametrize(("frames", "labels", "blank"), [(1, 2, 0), (4, 3, 0), (5, 3, 2), (6, 3, 1), (5, 4, 3)])
def test_is_exact_with_a_large_beam(backend: str, merge: str, frames: int, labels: int, blank: int) -> None:
    log_probs = log_probs_of(frames, labels, scale=2.0)
    expected = labellings(log_probs, blank, merge == "sum")
    found = prefix_search(log_probs, 10_000, blank=blank, merge=merge, margin=math.inf, n_best=10_000, backend=backend)
    assert [tuple(one.labels) for one in found] == [labels for _, labels in expected]
    assert [one.score for one in found] == pytest.approx([score for score, _ in expected], abs=1e-9)


@native_only
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_native_equals_plain(data: st.DataObject) -> None:
    torch.manual_seed(data.draw(st.integers(0, 2**32)))
    frames, labels = data.draw(st.integers(0, 25)), data.draw(st.integers(2, 8))
    log_probs = log_probs_of(frames, labels, scale=data.draw(st.sampled_from([0.0, 0.5, 3.0])))
    if data.draw(st.booleans()):
        log_probs[torch.rand(log_probs.shape) < 0.2] = -torch.inf
        log_probs = log_probs.log_softmax(-1).nan_to_num(nan=-math.log(labels))
    options: dict[str, Any] = {
        "beam": data.draw(st.integers(1, 12)),
        "blank": data.draw(st.integers(0, labels - 1)),
        "merge": data.draw(st.sampled_from(["sum", "max"])),
        "margin": data.draw(st.sampled_from([None, 0.5, 5.0, math.inf])),
        "n_best": 5,
    }
    native = prefix_search(log_probs, backend="native", **options)
    plain = prefix_search(log_probs, backend="reference", **options)
    assert native == plain  # to the bit: the same sums in the same order


@pytest.mark.parametrize("backend", BACKENDS)
def test_scores_are_those_of_the_loss(backend: str) -> None:
    log_probs = log_probs_of(7, 4, scale=3.0)
    for found in prefix_search(log_probs, 10_000, margin=math.inf, n_best=3, backend=backend):
        loss = ctc_loss(log_probs.double(), torch.tensor(found.labels), reduction="sum")
        assert found.score == pytest.approx(-loss.item(), abs=1e-9)


def test_best_path_reads_every_frames_best_label() -> None:
    path = [0, 1, 1, 0, 1, 2, 2, 0]
    found = best_path(torch.eye(3)[path].mul(4).log_softmax(-1))
    assert found.labels == [1, 1, 2]
    assert found.spans == [(1, 3), (4, 5), (5, 7)]
    assert best_path(torch.zeros(0, 3)).labels == []


def test_equals_fast_ctc_decode() -> None:
    decoder = pytest.importorskip("fast_ctc_decode")
    log_probs = log_probs_of(60, 5, scale=4.0)
    theirs, _ = decoder.beam_search(log_probs.exp().numpy().astype(np.float32), "Nabcd", beam_size=50)
    assert "".join("Nabcd"[label] for label in prefix_search(log_probs, 50, margin=math.inf)[0].labels) == theirs
    greedy, _ = decoder.viterbi_search(log_probs.exp().numpy(), "Nabcd")
    assert "".join("Nabcd"[label] for label in best_path(log_probs).labels) == greedy


@pytest.mark.parametrize("merge", ["sum", "max"])
def test_equals_flashlights_lexicon_free_decoder(merge: str) -> None:
    decoder = pytest.importorskip("flashlight.lib.text.decoder")
    log_probs = log_probs_of(50, 6, scale=2.0)
    options = decoder.LexiconFreeDecoderOptions(
        beam_size=2000,
        beam_size_token=6,
        beam_threshold=1e4,
        lm_weight=0.0,
        sil_score=0.0,
        log_add=merge == "sum",
        criterion_type=decoder.CriterionType.CTC,
    )
    theirs = decoder.LexiconFreeDecoder(options, decoder.ZeroLM(), -1, 0, []).decode(log_probs.data_ptr(), 50, 6)[0]
    path = [token for token in theirs.tokens if token >= 0]
    labels = [b for a, b in zip([0, *path], path, strict=False) if b not in (0, a)]
    ours = prefix_search(log_probs, 2000, merge=merge, margin=math.inf, n_best=20)
    if merge == "max":
        assert ours[0].labels == labels
        assert ours[0].score == pytest.approx(theirs.score, abs=1e-3)
        return
    # flashlight sums only the paths that end as its best one does, in a blank or not: at least half of the whole sum
    (same,) = [one for one in ours if one.labels == labels]
    assert same.score >= theirs.score - 1e-6
    assert same.score >= ours[0].score - math.log(2) - 1e-6


GOOD = torch.full((3, 4), math.log(0.25))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: best_path(torch.zeros(2, 3, 4)), "posteriors must be (frames, labels), got shape (2, 3, 4)."),
        (
            lambda: prefix_search(GOOD.exp()),
            "posteriors are not log-probabilities: they look like probabilities, each row adds up to 1. "
            "Take log_softmax of logits and the logarithm of probabilities, or say kind='logits' (--kind logits) or "
            "kind='probs' (--kind probs).",
        ),
        (
            lambda: prefix_search(torch.tensor([[1.0, 2.0]])),
            "posteriors are not log-probabilities: the exponentials of row 0 add up to 10.1, so they look like logits. "
            "Take log_softmax of logits and the logarithm of probabilities, or say kind='logits' (--kind logits) or "
            "kind='probs' (--kind probs).",
        ),
        (
            lambda: prefix_search(torch.tensor([[1.0, 2.0]]), kind="probs"),
            "The rows of posteriors are not probabilities: the exponentials of row 0 add up to 10.1, so they look like "
            "logits. Say what they are: kind='logits' (--kind logits) or kind='log_probs' (--kind log_probs).",
        ),
        (
            lambda: prefix_search(GOOD, kind="probs"),
            "The rows of posteriors are not probabilities: they look like log-probabilities, the exponentials of each "
            "row add up to 1. Say what they are: kind='logits' (--kind logits) or kind='log_probs' (--kind log_probs).",
        ),
        (
            lambda: best_path(GOOD.T),
            "The exponentials of each column of posteriors add up to 1, not those of each row: it looks transposed. "
            "Expected (frames, labels): take its transpose, array.T.",
        ),
        (
            lambda: best_path(torch.tensor([[0.0, -torch.inf], [torch.nan, 0.0]])),
            "posteriors[1, 0] is nan. Posteriors must be numbers.",
        ),
        (
            lambda: best_path(GOOD, kind="log"),
            "Unknown kind of posteriors 'log'. Did you mean 'logits'? Choices: log_probs, logits, probs.",
        ),
        (lambda: best_path(GOOD, blank=4), "blank=4 is not one of the 4 labels. Use a number from 0 to 3."),
        (lambda: prefix_search(GOOD, 0), "beam=0 is not a whole number from 1 up. Use 1."),
        (lambda: prefix_search(GOOD, n_best=0), "n_best=0 is not a whole number from 1 up. Use 1."),
        (
            lambda: prefix_search(GOOD, margin=-1),
            "margin=-1 is not a number from 0 up. Use math.inf for no limit.",
        ),
        (lambda: prefix_search(GOOD, merge="add"), "Unknown merge 'add'. Choices: max, sum."),
        (lambda: prefix_search(GOOD, backend="gpu"), "Unknown backend 'gpu'. Choices: auto, native, reference."),
    ],
)
def test_bad_input(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(UserError) as error:
        call()
    assert str(error.value) == message


def test_zero_frames_read_as_nothing() -> None:
    for backend in BACKENDS:
        (found,) = prefix_search(torch.zeros(0, 4), backend=backend, n_best=3)
        assert (found.score, found.labels, found.spans) == (0.0, [], [])


def test_kinds_of_posteriors() -> None:
    logits = torch.randn(6, 4)
    expected = best_path(logits.log_softmax(-1))
    assert best_path(logits, kind="logits") == expected
    assert best_path(logits.softmax(-1).numpy(), kind="probs").labels == expected.labels
    assert best_path(logits.log_softmax(-1).half()).labels == expected.labels


def test_the_best_alone_has_a_margin_and_lists_have_none() -> None:
    log_probs = log_probs_of(60, 6, scale=1.0)
    assert prefix_search(log_probs) == prefix_search(log_probs, margin=10.0)
    assert prefix_search(log_probs, n_best=40) == prefix_search(log_probs, margin=math.inf, n_best=40)
    # "b" is 12 nats below "a" after the first frame
    probs = torch.tensor([[1e-9, 1 - 6e-6, 6e-6], [1e-12, 1e-12, 1.0]]).log()
    assert prefix_search(probs, 10, margin=math.inf, n_best=2)[1].labels == [2]
    assert prefix_search(probs, 10, margin=10.0, n_best=2)[1:] == []
