"""Streams of exported models: the same as those of their model files, however the input is cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.runtime.folders import STORED, exported_of, model_of
from tests.tolerances import TOLERANCES
from unrolled import api, runtime
from unrolled.errors import UserError
from unrolled.nn.crf import CRF
from unrolled.runtime.crf import Transitions

CLOSE: dict[str, Any] = {"rel": TOLERANCES[torch.float32], "abs": TOLERANCES[torch.float32]}
TEXT = "3 and 4 make 7\n1 and 2 make 3\n" * 20


@pytest.mark.parametrize("kind", ["generate-lstm", "generate-transformer", "generate-feedforward", "generate-bpe"])
def test_text_in_pieces(kind: str) -> None:
    """A Transformer's window is filled several times over."""
    with model_of(kind).stream() as theirs, exported_of(kind).stream() as ours:
        for first in range(0, len(TEXT), 130):
            piece = TEXT[first : first + 130]
            assert ours.feed(piece) == pytest.approx(theirs.feed(piece), **CLOSE)
        assert ours.finish() == pytest.approx(theirs.finish(), **CLOSE)
        options = {"max_tokens": 80, "temperature": 0.9, "seed": 7}
        assert "".join(ours.write(**options)) == "".join(theirs.write(**options))


def test_rows_one_at_a_time() -> None:
    rows = np.loadtxt(STORED / "waves.csv", delimiter=",", skiprows=1)
    for kind in ("forecast", "forecast-lags"):
        ours, theirs = exported_of(kind).stream(), model_of(kind).stream()
        for row in rows[:20]:
            np.testing.assert_allclose(ours.feed(row), theirs.feed(row), rtol=1e-4, atol=1e-5)
        together = exported_of(kind).stream().feed(rows[:20])
        alone = exported_of(kind).stream()
        assert np.array_equal(together, np.stack([alone.feed(row) for row in rows[:20]]))
        np.testing.assert_allclose(ours.roll_out(5), theirs.roll_out(5), rtol=1e-4, atol=1e-5)


def test_a_bidirectional_tagger_does_not_stream() -> None:
    for kind in ("tag-softmax", "tag-crf"):
        with pytest.raises(UserError) as ours:
            exported_of(kind).stream()
        with pytest.raises(UserError) as theirs:
            model_of(kind).stream()
        assert str(ours.value) == str(theirs.value)


def test_a_tagger_of_one_direction(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tagger")
    rows = "".join(f"Ada\tN\n{verb}\tV\n\n" for verb in ("met", "ran", "saw", "sat"))
    (folder / "words.conll").write_text(rows)
    sizes = {"model.hidden_size": 8, "model.bidirectional": False, "train.max_steps": 3, "model.letter_hidden": 4}
    model = api.train("tag", train=folder / "words.conll", out=folder / "run", quiet=True, set=sizes)
    api.export_onnx(model, folder / "onnx", check=False)
    ours, theirs = runtime.load(folder / "onnx").stream(probabilities=True), model.stream(probabilities=True)
    for piece in ("Ada met", "Kurt", "and saw Ada ."):
        for one, other in zip(ours.feed(piece), theirs.feed(piece), strict=True):
            assert one[:2] == other[:2]
            assert one[2] == pytest.approx(other[2], **CLOSE)


@pytest.mark.parametrize("tags", [1, 2, 5])
def test_tags_of_a_field(tags: int) -> None:
    crf = CRF(tags)
    torch.nn.init.normal_(crf.transitions)
    torch.nn.init.normal_(crf.start)
    torch.nn.init.normal_(crf.end)
    emissions, lengths = 2 * torch.randn(6, 9, tags), torch.tensor([9, 1, 0, 4, 2, 9])
    forbidden = (torch.rand(tags, tags) < 0.2, torch.zeros(tags) > 0, torch.zeros(tags) > 0)
    stored = {name: value.detach().tolist() for name, value in crf.named_parameters()}
    field = Transitions.of(stored, tags, [mask.numpy() for mask in forbidden])
    paths, chances = crf.decode(emissions, lengths, forbidden), crf.marginals(emissions, lengths, forbidden)
    for row, length in enumerate(lengths.tolist()):
        scores = emissions[row, :length].numpy()
        assert field.best(scores) == paths[row]
        np.testing.assert_allclose(field.marginals(scores), chances[row, :length].numpy(), atol=1e-5)


def test_a_field_of_other_tags_is_refused() -> None:
    with pytest.raises(UserError, match=r"^The CRF of the manifest is not one of 3 tags\."):
        Transitions.of({"transitions": [[0.0]], "start": [0.0], "end": [0.0]}, 3, None)
