"""CTC's search as a tree of the prefixes that it holds after each frame."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.see.models import input_of
from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.search.ctc import prefix_search
from unrolled.search.ctc.prefix_beam import plain_prefix_search
from unrolled.see import Beams
from unrolled.see.beams import SEEN, Held

Find = Callable[[str], Model]
NAMES = "-abcd"


def peaks(frames: int = 24) -> Tensor:
    """Posteriors of mostly blanks, with peaks of one or two labels."""
    scores = torch.randn(frames, len(NAMES))
    scores[:, 0] += 5
    for t in range(2, frames, 4):
        first, second = torch.randperm(len(NAMES) - 1)[:2] + 1
        scores[t, first], scores[t, second] = 7.0, 6.5
    return scores.log_softmax(-1)


def grown(log_probs: Tensor, beam: int) -> Beams:
    held: list[Held] = []
    plain_prefix_search(log_probs.double().tolist(), beam, 0, True, math.inf, held.append)
    return Beams.of_frames(held, NAMES.__getitem__, lambda ids: "".join(NAMES[i] for i in ids))


def text_of(tree: Beams, number: int) -> str:
    node = tree.nodes[number]
    return (text_of(tree, node.parent) if node.parent >= 0 else "") + node.token


def test_its_live_part_is_what_a_search_of_so_many_frames_finds() -> None:
    """The shares after each frame are those of the C++ search over the frames so far."""
    log_probs, beam = peaks(), 5
    tree = grown(log_probs, beam)
    texts = {text_of(tree, i): node for i, node in enumerate(tree.nodes)}
    assert len(texts) == len(tree.nodes)
    for read in range(1, len(log_probs) + 1):
        found = prefix_search(log_probs[:read], beam, margin=math.inf, n_best=beam)
        shares = torch.tensor([one.score for one in found], dtype=torch.float64).softmax(0)
        for one, share in zip(found, shares.tolist(), strict=True):
            text = "".join(NAMES[i] for i in one.labels)
            if text and share >= SEEN:
                node = texts[text]
                assert node.step <= read <= node.last
                assert node.shares[read - node.step] == pytest.approx(share, abs=1e-6)
        expected = {"".join(NAMES[i] for i in one.labels) for one in found}
        held = {text for text, node in texts.items() if node.step <= read <= node.last}
        assert all(texts[text].shares[read - texts[text].step] == 0 for text in held - expected)
    assert tree.outputs[0][0] == "".join(NAMES[i] for i in prefix_search(log_probs, beam, margin=math.inf)[0].labels)


def test_it_is_a_prefix_tree_with_a_winner() -> None:
    tree = grown(peaks(60), 6)
    winner = max(i for i, node in enumerate(tree.nodes) if node.fate == "winner")
    assert text_of(tree, winner) == tree.outputs[0][0]
    assert sum(node.fate == "winner" for node in tree.nodes) == len(tree.outputs[0][0])
    outputs = [text for text, _, _ in tree.outputs]
    for i, node in enumerate(tree.nodes):
        assert node.parent < i
        assert node.parent < 0 or tree.nodes[node.parent].step <= node.step
        assert node.fate == "pruned" or any(text.startswith(text_of(tree, i)) for text in outputs)
        assert node.edge == max(node.shares)
    assert any(node.fate == "pruned" for node in tree.nodes)
    leaves = {node.parent for node in tree.nodes}.symmetric_difference(range(-1, len(tree.nodes))) - {-1}
    heights = [tree.places[i] for i in leaves]
    assert sorted(heights) == list(range(len(heights)))


def test_a_recogniser_has_one_unless_it_hears_nothing(model_of: Find) -> None:
    model = model_of("recognize")
    bias = model.network.get_parameter("scores.bias")
    kept = bias.detach().clone()
    try:
        with torch.no_grad():
            bias[0] -= 20
        trace = model.trace(input_of("recognize"), beam=4)
        assert trace.beams is not None
        assert trace.frames is not None
        assert trace.beams.steps == trace.beams.frames == len(trace.frames.posteriors)
        assert len(trace.beams.outputs) == 4
        assert "frames read" in trace.figure("beams").axes[0].get_xlabel()
        with torch.no_grad():
            bias[0] += 60
        assert model.trace(input_of("recognize")).why_not("beams") == (
            "The search held nothing but silence: there is no tree to draw."
        )
    finally:
        with torch.no_grad():
            bias.copy_(kept)


def test_too_many_frames_to_show(model_of: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unrolled.tasks.recognize.trace.MOST_SEARCHED", 2)
    trace = model_of("recognize").trace(input_of("recognize"))
    frames = len(trace.frames.posteriors)  # type: ignore[union-attr]
    with pytest.raises(UserError) as error:
        trace.figure("beams")
    message = f"The search is shown for up to 2 frames; this input has {frames}. Choices: "
    assert str(error.value).startswith(message)
