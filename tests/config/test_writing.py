"""A written config is read again with the same values; comments describe every key."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from tests.config.sections import Config, Data, Encoder, Model, Train
from unrolled.config import Key, Section, describe, keys, read_config, write_toml
from unrolled.errors import UserError

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = NUMBERS.filter(lambda x: x > 0)
CONFIGS = st.builds(
    Config,
    task=TEXT,
    data=st.builds(
        Data,
        train=st.none() | TEXT | st.just("none"),
        cache=TEXT.map(Path),
        level=st.sampled_from(["char", "word"]),
        lowercase=st.booleans(),
        files=st.lists(TEXT),
        name=TEXT,
    ),
    model=st.builds(
        Model,
        cell=st.sampled_from(["gru", "lstm"]),
        hidden_size=st.integers(1),
        num_heads=st.just(1),
        dropout=st.floats(0, 1, exclude_max=True),
        peephole=st.sampled_from([True, False, "previous"]),
        encoder=st.builds(Encoder, num_layers=st.integers(1, 8), sizes=st.lists(st.integers(1), min_size=1)),
    ),
    train=st.builds(
        Train,
        lr=POSITIVE,
        decay=st.sampled_from(["cosine", "plateau", None]),
        clip_norm=st.none() | POSITIVE,
        max_steps=st.none() | st.integers(1),
        batch_size=st.integers(1) | st.just("auto"),
        betas=st.tuples(NUMBERS, NUMBERS),
        seed=st.integers().filter(lambda x: x != 13),
    ),
)


@given(config=CONFIGS, comments=st.booleans(), header=TEXT)
def test_a_written_config_reads_back(
    config: Config, comments: bool, header: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "round.toml"
    path.write_bytes(write_toml(config, comments=comments, header=header).encode())
    assert read_config(Config, path) == config


def test_the_whole_text() -> None:
    assert write_toml(Model(), comments=False, header="One.\n\nTwo.") == (
        "# One.\n#\n# Two.\n\n"
        'cell = "lstm"\nhidden_size = 256\nnum_heads = 1\ndropout = 0.0\npeephole = false\n\n'
        "[encoder]\nnum_layers = 2\nsizes = [8]\n"
    )
    assert write_toml(Model(cell="gru"), comments=True) == (
        '# Recurrent cell. Choices: gru, lstm. Default: "lstm".\ncell = "gru"\n\n'
        "# Units in each layer. A whole number, 1 or more. Default: 256.\nhidden_size = 256\n\n"
        "# Heads. A whole number, 1 or more. Default: 1.\nnum_heads = 1\n\n"
        "# Share of units dropped. A number from 0 up to, not including, 1. Default: 0.0.\ndropout = 0.0\n\n"
        "# Which memory gates see. Choices: true, false, previous. Default: false.\npeephole = false\n\n"
        "# The part that reads.\n[encoder]\n\n"
        "# Layers. A whole number from 1 to 8. Default: 2.\nnum_layers = 2\n\n"
        "# Width of each layer. A list of length 1 or more, each a whole number, 1 or more. Default: [8].\n"
        "sizes = [8]\n"
    )


def test_nothing_is_none_in_writing() -> None:
    text = write_toml(Config(train=Train(clip_norm=None)), comments=True)
    assert '# Largest norm of the gradient. A number above 0 or none. Default: 1.0.\nclip_norm = "none"\n' in text
    assert "# File to train on. Text or none. Default: none.\n# train =\n" in text
    assert 'Choices: cosine, plateau, none. Default: "cosine".\ndecay = "cosine"\n' in text


def test_a_meaning_stands_as_it_was_written() -> None:
    assert "# bf16 is no seed. A whole number. Default: 1.\n" in write_toml(Config(), comments=True)


def test_comments_say_meaning_choices_and_default_of_every_key() -> None:
    text = write_toml(Config(), comments=True)
    assert max(map(len, text.splitlines())) <= 100
    for key in describe(Config):
        name = key.path.rpartition(".")[2]
        found = re.search(rf"((?:^# .*\n)+)(?:# )?{name} =", text, re.MULTILINE)
        assert found, key.path
        comment = found[1].replace("\n# ", " ")
        assert key.meaning.strip() in comment
        assert "Default: " in comment
        assert all(choice in comment for choice in key.choice_texts)
        assert key.bounds in comment


def test_describe_is_in_order_and_complete() -> None:
    assert list(keys(Train)) == list(Train.model_fields)
    assert list(keys(Config))[:3] == ["task", "data.train", "data.cache"]
    assert keys(Config)["model.cell"] == Key(
        "model.cell", 'one of "gru", "lstm"', "lstm", ("gru", "lstm"), "", "Recurrent cell.", frozenset()
    )
    assert keys(Config)["train.max_steps"].bounds == "1 or more"


class Needs(Section):
    file: str = Field(description="File.")


def test_a_key_without_a_default() -> None:
    with pytest.raises(UserError) as caught:
        read_config(Needs, None)
    assert str(caught.value) == "file is missing. Expected text."
    assert read_config(Needs, None, ["file=a"]) == Needs(file="a")
    assert write_toml(Needs(file="a"), comments=True) == '# File. Text. Required.\nfile = "a"\n'


class Unwritable(Section):
    file: str | None = Field(default="a", description="File.")


class Unusual(Section):
    table: dict[str, int] = Field(default={}, description="Table.")


def test_classes_that_toml_cannot_hold() -> None:
    with pytest.raises(TypeError, match=r"file: optional text needs the default None, because TOML has no null\."):
        describe(Unwritable)
    with pytest.raises(TypeError, match=r"dict\[str, int\] cannot be a key of a configuration\."):
        describe(Unusual)


def test_sections_are_frozen_and_strict_about_names() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Config().task = "x"  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs"):
        Model(hiden_size=3)  # type: ignore[call-arg]


def test_importing_it_does_not_import_torch() -> None:
    program = "import sys, unrolled.config; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
