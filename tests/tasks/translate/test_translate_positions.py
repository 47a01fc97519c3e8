"""Position codes of a translator: those of the decoder are the encoder's, or are asked for by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import unrolled
from tests.cli.test_generate import call
from tests.fitting import fitting
from tests.tasks.translate.conftest import KINDS, SMALL, numbers, small, table
from unrolled.config import apply
from unrolled.models.transformer_translator import TransformerTranslator
from unrolled.tasks.translate.describe import FRACTION


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "numbers.tsv"
    path.write_text(table(numbers()[:20]))
    return path


def transformer(**changes: Any) -> dict[str, Any]:
    return {**{key.replace(".", "__"): value for key, value in KINDS["transformer"].items()}, **changes}


def test_fraction_needs_the_codes_of_the_decoder(pairs: Path, tmp_path: Path) -> None:
    """A text that is being written has no length yet: no decoder takes sinusoids in silence."""
    keys = fitting("translate", {**SMALL, **KINDS["transformer"], "train.max_steps": 1, "model.positions": "fraction"})
    changes = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    command: list[str | Path] = ["train", "translate", "--train", pairs, "--out", tmp_path / "run", *changes]
    code, _, said = call(*command)
    assert code == 2
    assert said.endswith(
        "model.positions=fraction: a decoder does not know how long its text will be, so this code is for the encoder "
        "alone. Set that of the decoder too, such as model.target_positions=sinusoidal; or use another "
        "model.positions.\n"
    )
    assert not (tmp_path / "run").exists()
    code, _, said = call(*command, "--set", "model.target_positions=binary")
    assert code == 0, said
    network: Any = unrolled.load(tmp_path / "run").network
    assert (network.source_positions.kind, network.target_positions.kind) == ("fraction", "binary")
    assert FRACTION not in call("info", tmp_path / "run")[1]


def test_a_model_from_before_the_key_keeps_its_sinusoids_and_says_so(pairs: Path, tmp_path: Path) -> None:
    """Such a file has positions=fraction alone. It answers as before, and training on may start from it."""
    model = small(
        pairs, tmp_path / "run", **transformer(model__positions="fraction", model__target_positions="sinusoidal")
    )
    answers = [str(one) for one in model.predict(["3 5", "7"])]
    file = tmp_path / "old.safetensors"
    replace(model, config=apply(model.config, {"model.target_positions": "auto"})).save(file)
    old = unrolled.load(file)
    network: Any = old.network
    assert (network.source_positions.kind, network.target_positions.kind) == ("fraction", "sinusoidal")
    assert [str(one) for one in old.predict(["3 5", "7"])] == answers
    assert FRACTION in call("info", file)[1]
    code, _, said = call(
        "train", "translate", "--train", pairs, "--init", file, "--out", tmp_path / "on", "--set", "train.max_steps=1"
    )
    assert (code, f"Note: {FRACTION}" in said) == (0, True), said


def test_a_code_that_is_named_is_the_decoders(pairs: Path, tmp_path: Path) -> None:
    model = small(pairs, tmp_path / "run", **transformer(model__target_positions="count"), train__max_steps=1)
    network: Any = model.network
    assert (network.source_positions.kind, network.target_positions.kind) == ("sinusoidal", "count")


@pytest.mark.parametrize("positions", ["count", "sinusoidal"])
def test_other_codes_are_those_of_both_sides(positions: str, pairs: Path, tmp_path: Path) -> None:
    model = small(pairs, tmp_path / "run", **transformer(model__positions=positions), train__max_steps=1)
    network = model.network
    assert isinstance(network, TransformerTranslator)
    assert network.source_positions.kind == network.target_positions.kind == positions
    assert model.task.description.remarks(model) == []
