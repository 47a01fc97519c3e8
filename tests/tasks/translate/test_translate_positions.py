"""Position codes of a translator: a decoder that takes others than were asked for says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_generate import call
from tests.fitting import fitting
from tests.tasks.translate.conftest import KINDS, SMALL, numbers, small, table
from unrolled.models.transformer_translator import TransformerTranslator
from unrolled.tasks.translate.describe import FRACTION


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "numbers.tsv"
    path.write_text(table(numbers()[:20]))
    return path


def test_fraction_is_the_encoders_alone_and_a_note_says_so(pairs: Path, tmp_path: Path) -> None:
    keys = {**SMALL, **KINDS["transformer"], "train.max_steps": 1, "model.positions": "fraction"}
    keys = fitting("translate", keys)
    changes = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    code, _, said = call("train", "translate", "--train", pairs, "--out", tmp_path / "run", *changes)
    assert code == 0
    assert f"Note: {FRACTION}" in said
    assert FRACTION in call("info", tmp_path / "run")[1]


@pytest.mark.parametrize("positions", ["count", "sinusoidal"])
def test_other_codes_are_those_of_both_sides(positions: str, pairs: Path, tmp_path: Path) -> None:
    changes = {key.replace(".", "__"): value for key, value in KINDS["transformer"].items()}
    model = small(pairs, tmp_path / "run", **changes, model__positions=positions, train__max_steps=1)
    network = model.network
    assert isinstance(network, TransformerTranslator)
    assert network.source_positions.kind == network.target_positions.kind == positions
    assert model.task.description.remarks(model) == []
