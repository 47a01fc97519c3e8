"""Configurations: what is read is what was written, the last word wins, and every mistake is told in plain words."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError, field_validator, model_validator

from unrolled.config import Key, Section, apply, describe, keys, read_config, write_toml
from unrolled.errors import UserError

Size = Annotated[int, Field(ge=1)]


class Data(Section):
    train: str | None = Field(default=None, description="File to train on")
    cache: Path = Field(default=Path("cache"), description="Folder for what was read once.")
    level: Literal["char", "word"] = Field(default="char", description="Unit of text.")
    lowercase: bool = Field(default=False, description="Whether capitals are lost.")
    files: list[str] = Field(default_factory=list, description="More files.")
    name: str = Field(default='a "b"\n\\c', description="Name.")


class Encoder(Section):
    num_layers: int = Field(default=1, ge=1, le=8, description="Layers.")
    sizes: list[Size] = Field(default=[8], min_length=1, description="Width of each layer.")


class Model(Section):
    cell: Literal["gru", "lstm"] = Field(default="lstm", description="Recurrent cell.")
    hidden_size: int = Field(default=256, ge=1, description="Units in each layer.")
    num_heads: int = Field(default=1, ge=1, description="Heads.")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="Share of units dropped.")
    peephole: Literal[True, False, "previous"] = Field(default=False, description="Which memory gates see.")
    encoder: Encoder = Field(default=Encoder(num_layers=2), description="The part that reads")

    @model_validator(mode="after")
    def heads_divide(self) -> Model:
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size={self.hidden_size} is not divisible by num_heads={self.num_heads}.")
        return self


class Train(Section):
    lr: float = Field(default=3e-4, gt=0, description="Learning rate.")
    decay: Literal["cosine", "plateau"] | None = Field(default="cosine", description="How the learning rate falls.")
    clip_norm: float | None = Field(default=1.0, gt=0, description="Largest norm of the gradient.")
    max_steps: int | None = Field(default=None, ge=1, description="Stop after so many steps.")
    batch_size: Size | Literal["auto"] = Field(default="auto", description="Sequences in a batch.")
    betas: tuple[float, float] = Field(default=(0.9, 0.999), description="Averages of Adam. " * 9)
    seed: int = Field(default=1, description="bf16 is no seed")

    @field_validator("seed")
    @classmethod
    def not_unlucky(cls, value: int) -> int:
        if value == 13:
            raise ValueError("13 is an unlucky number.")
        return value


class Config(Section):
    task: str = Field(default="generate", description="Task.")
    data: Data = Data()
    model: Model = Field(default=Model(), description="The network.")
    train: Train = Train()


def read(tmp_path: Path, text: str, *overrides: str, **extra: Any) -> Config:
    path = tmp_path / "my.toml"
    path.write_text(text)
    return read_config(Config, path, overrides, extra)


def message(tmp_path: Path, text: str, *overrides: str, extra: dict[str, Any] | None = None) -> str:
    with pytest.raises(UserError) as caught:
        read(tmp_path, text, *overrides, **(extra or {}))
    return str(caught.value).replace(str(tmp_path) + os.sep, "")


MISTAKES: dict[str, tuple[str, str]] = {
    "unknown key": (
        "[model]\nhiden_size = 3",
        "my.toml:2: Unknown key 'model.hiden_size'. Did you mean 'model.hidden_size'?",
    ),
    "hyphens and capitals": (
        "[model]\n\nHidden-Size = 3",
        "my.toml:3: Unknown key 'model.Hidden-Size'. Did you mean 'model.hidden_size'?",
    ),
    "key of another section": (
        "hidden_size = 3",
        "my.toml:1: Unknown key 'hidden_size'. Did you mean 'model.hidden_size'?",
    ),
    "similar to a key of another section": (
        "[train]\nhiden_size = 3",
        "my.toml:2: Unknown key 'train.hiden_size'. Did you mean 'model.hidden_size'?",
    ),
    "like no key": (
        "[model.encoder]\nxyz = 3",
        "my.toml:2: Unknown key 'model.encoder.xyz'. Choices: model.encoder.num_layers, model.encoder.sizes.",
    ),
    "like no key at the top": ("xyz = 3", "my.toml:1: Unknown key 'xyz'. Choices: data, model, task, train."),
    "key in an inline table": (
        "# a\nmodel = { cell = 'gru', lr = 3 }",
        "my.toml:2: Unknown key 'model.lr'. Did you mean 'train.lr'?",
    ),
    "dotted key": ("\n'model' . sell = 'gru'", "my.toml:2: Unknown key 'model.sell'. Did you mean 'model.cell'?"),
    "after values of many lines": (
        'task = """\nhiden = 3\n[model]\n"""\n[data]\nfiles = [\n"a", # ]\n"b",\n]\nfoo = 1\nlvel = "char"',
        "The config has 2 mistakes:\n"
        "  my.toml:10: Unknown key 'data.foo'. "
        "Choices: data.cache, data.files, data.level, data.lowercase, data.name, data.train.\n"
        "  my.toml:11: Unknown key 'data.lvel'. Did you mean 'data.level'?",
    ),
    "key without a name": ("'' = 3", "my.toml:1: Unknown key ''. Choices: data, model, task, train."),
    "unknown section": ("[modle]\ncell = 'gru'", "my.toml:1: Unknown section 'modle'. Did you mean 'model'?"),
    "unknown list of tables": ("[[xyz]]\ncell = 1", "my.toml:1: Unknown key 'xyz'. Choices: data, model, task, train."),
    "value for a section": (
        "model = 'lstm'",
        "my.toml:1: model='lstm' gives a value to a section. Set one of its keys: model.cell, model.dropout, "
        "model.encoder, model.hidden_size, model.num_heads, model.peephole.",
    ),
    "choice": (
        "[model]\ncell = 'lstn'",
        "my.toml:2: Unknown model.cell 'lstn'. Did you mean 'lstm'? Choices: gru, lstm.",
    ),
    "choice or none": ("train.decay = 3", "my.toml:1: Unknown train.decay 3. Choices: cosine, none, plateau."),
    "choice with truth values": (
        "model.peephole = 'previuos'",
        "my.toml:1: Unknown model.peephole 'previuos'. Did you mean 'previous'? Choices: false, previous, true.",
    ),
    "text for a whole number": (
        "model.hidden_size = 'big'",
        "my.toml:1: model.hidden_size='big' is text. Expected a whole number, 1 or more.",
    ),
    "digits in quotes": (
        "model.hidden_size = '12'",
        "my.toml:1: model.hidden_size='12' is text. Expected a whole number, 1 or more.",
    ),
    "decimals": (
        "model.hidden_size = 2.5",
        "my.toml:1: model.hidden_size=2.5 is a decimal number. Expected a whole number, 1 or more.",
    ),
    "infinite size": (
        "model.hidden_size = inf",
        "my.toml:1: model.hidden_size=inf is a decimal number. Expected a whole number, 1 or more.",
    ),
    "truth value for a number": (
        "train.lr = true",
        "my.toml:1: train.lr=true is a truth value. Expected a number above 0.",
    ),
    "number for a truth value": (
        "data.lowercase = 1",
        "my.toml:1: data.lowercase=1 is a whole number. Expected true or false.",
    ),
    "date for text": (
        "task = 2024-01-01",
        "my.toml:1: task=datetime.date(2024, 1, 1) is of type date. Expected text.",
    ),
    "table for a number": ("[train.lr]\na = 1", "my.toml:1: train.lr={'a': 1} is a table. Expected a number above 0."),
    "text for a path": ("data.cache = 3", "my.toml:1: data.cache=3 is a whole number. Expected a path."),
    "below": (
        "model.hidden_size = 0",
        "my.toml:1: model.hidden_size=0 is out of range. Expected a whole number, 1 or more.",
    ),
    "without end": ("train.lr = inf", "my.toml:1: train.lr=inf is out of range. Expected a number above 0."),
    "not above": ("train.lr = 0.0", "my.toml:1: train.lr=0.0 is out of range. Expected a number above 0."),
    "not below": (
        "model.dropout = 1.0",
        "my.toml:1: model.dropout=1.0 is out of range. Expected a number from 0 up to, not including, 1.",
    ),
    "outside": (
        "model.encoder.num_layers = 9",
        "my.toml:1: model.encoder.num_layers=9 is out of range. Expected a whole number from 1 to 8.",
    ),
    "optional": (
        "train.max_steps = 'all'",
        "my.toml:1: train.max_steps='all' is text. Expected a whole number, 1 or more, or none.",
    ),
    "number or word": (
        "train.batch_size = 'aut'",
        "my.toml:1: train.batch_size='aut' is text. Expected a whole number, 1 or more, or \"auto\".",
    ),
    "number or word, out of range": (
        "train.batch_size = 0",
        'my.toml:1: train.batch_size=0 is out of range. Expected a whole number, 1 or more, or "auto".',
    ),
    "no list": ("data.files = 'a'", "my.toml:1: data.files='a' is text. Expected a list, each text."),
    "in a list": ("data.files = ['a', 2]", "my.toml:1: data.files[1]=2 is a whole number. Expected a list, each text."),
    "range in a list": (
        "model.encoder.sizes = [1, 0]",
        "my.toml:1: model.encoder.sizes[1]=0 is out of range. "
        "Expected a list of length 1 or more, each a whole number, 1 or more.",
    ),
    "empty list": (
        "model.encoder.sizes = []",
        "my.toml:1: model.encoder.sizes=[] has length 0. "
        "Expected a list of length 1 or more, each a whole number, 1 or more.",
    ),
    "list too short": (
        "train.betas = [0.9]",
        "my.toml:1: train.betas=[0.9] has length 1. Expected a list of 2: a number, a number.",
    ),
    "list too long": (
        "train.betas = [1, 2, 3]",
        "my.toml:1: train.betas=[1, 2, 3] has length 3. Expected a list of 2: a number, a number.",
    ),
    "long value": (
        f"data.lowercase = '{'x' * 99}'",
        f"my.toml:1: data.lowercase='{'x' * 58}… is text. Expected true or false.",
    ),
    "a key's own check": ("train.seed = 13", "my.toml:1: train.seed=13: 13 is an unlucky number."),
    "a section's own check": (
        "model.num_heads = 3",
        "model: hidden_size=256 is not divisible by num_heads=3.",
    ),
    "text without quotes": (
        "[model]\ncell = gru",
        'my.toml:2:8: Not valid TOML: invalid value. Text stands in quotes: key = "text".',
    ),
    "key twice": ("task = 'a'\ntask = 'b'", "my.toml:2:11: Not valid TOML: cannot overwrite a value."),
    "end in a text": ("\ntask = 'a", 'my.toml:2:10: Not valid TOML: expected "\'".'),
    "nested without end": (f"data.files = {'[' * 9999}", "my.toml: Lists are nested too deeply."),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_a_file(name: str, tmp_path: Path) -> None:
    text, expected = MISTAKES[name]
    assert message(tmp_path, text) == expected


OVERRIDE_MISTAKES = {
    "model.cell gru": "--set: 'model.cell gru' gives no key a value. Write key=value, such as task=...",
    "=3": "--set: '=3' gives no key a value. Write key=value, such as task=...",
    "model.hiden_size=3": "--set: Unknown key 'model.hiden_size'. Did you mean 'model.hidden_size'?",
    "modle.cell=gru": "--set: Unknown key 'modle.cell'. Did you mean 'model.cell'?",
    "num_layers=2": "--set: Unknown key 'num_layers'. Did you mean 'model.encoder.num_layers'?",
    "model=lstm": "--set: model='lstm' gives a value to a section. Set one of its keys: model.cell, model.dropout, "
    "model.encoder, model.hidden_size, model.num_heads, model.peephole.",
    "model.cell=lstn": "--set: Unknown model.cell 'lstn'. Did you mean 'lstm'? Choices: gru, lstm.",
    "model.cell=3": "--set: Unknown model.cell '3'. Choices: gru, lstm.",
    "train.lr=fast": "--set: train.lr='fast' is text. Expected a number above 0.",
    "train.lr=none": "--set: train.lr='none' is text. Expected a number above 0.",
    "train.lr=-1": "--set: train.lr=-1 is out of range. Expected a number above 0.",
    "train.lr=": "--set: train.lr='' is text. Expected a number above 0.",
    "model={cell='gru'}": "--set: model={'cell': 'gru'} gives a value to a section. Set one of its keys: model.cell, "
    "model.dropout, model.encoder, model.hidden_size, model.num_heads, model.peephole.",
    "data.files=a": "--set: data.files='a' is text. Expected a list, each text.",
    "data.name=a\udcff": "--set: data.name='a\\udcff' is not valid Unicode. Expected text.",
}


@pytest.mark.parametrize("override", OVERRIDE_MISTAKES)
def test_mistakes_in_an_override(override: str) -> None:
    with pytest.raises(UserError) as caught:
        read_config(Config, None, [override])
    assert str(caught.value) == OVERRIDE_MISTAKES[override]


def test_all_mistakes_at_once_in_the_order_they_were_made(tmp_path: Path) -> None:
    text = "hidden_size = 3\n[train]\nlr = -0.1\n[model]\ncell = 'lstn'\n"
    expected = (
        "The config has 6 mistakes:\n"
        "  my.toml:1: Unknown key 'hidden_size'. Did you mean 'model.hidden_size'?\n"
        "  my.toml:3: train.lr=-0.1 is out of range. Expected a number above 0.\n"
        "  my.toml:5: Unknown model.cell 'lstn'. Did you mean 'lstm'? Choices: gru, lstm.\n"
        "  train.seed=none is no value. Expected a whole number.\n"
        "  --set: 'data' gives no key a value. Write key=value, such as task=...\n"
        "  --set: data.lowercase='maybe' is text. Expected true or false."
    )
    assert message(tmp_path, text, "data", "data.lowercase=maybe", extra={"train.seed": None}) == expected


def test_a_file_that_cannot_be_read_does_not_hide_the_overrides(tmp_path: Path) -> None:
    assert message(tmp_path, "a = ", "train.lr=0").splitlines() == [
        "The config has 2 mistakes:",
        '  my.toml:1:5: Not valid TOML: invalid value. Text stands in quotes: key = "text".',
        "  --set: train.lr=0 is out of range. Expected a number above 0.",
    ]


def test_a_mistake_that_is_overridden_is_none(tmp_path: Path) -> None:
    assert read(tmp_path, "train.lr = -1", "train.lr=1").train.lr == 1


def test_unreadable_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(path: Path) -> str:
        with pytest.raises(UserError) as caught:
            read_config(Config, path)
        return str(caught.value)

    monkeypatch.chdir(tmp_path)
    assert said(Path("no.toml")) == "There is no file 'no.toml'. `unrolled new` writes a config."
    assert said(Path("no/no.toml")) == "There is no file 'no/no.toml'. `unrolled new` writes a config."
    Path("folder").mkdir()
    assert said(Path("folder")) == "'folder' is a directory. Expected a TOML file."
    Path("latin.toml").write_bytes("task = 'a'\ndata.name = 'é'".encode("latin-1"))
    assert said(Path("latin.toml")) == "latin.toml:2: Byte 24 (0xe9) is not valid UTF-8. Save the file as UTF-8."

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert said(Path("latin.toml")) == "'latin.toml' cannot be read: Permission denied."


def test_a_file_of_another_system(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_bytes(b"\xef\xbb\xbf[train]\r\nlr = 1.5\r\n")
    assert read_config(Config, path).train.lr == 1.5
    path.write_bytes(b"\xef\xbb\xbf[data]\r\nfiles = [\r\n'a']\r\nlvel = 1.5\r\n")
    with pytest.raises(UserError, match=r"my\.toml:4: Unknown key 'data\.lvel'\."):
        read_config(Config, path)


def test_file_then_extra_then_overrides(tmp_path: Path) -> None:
    text = "task = 'file'\n[train]\nlr = 1\nseed = 1\nmax_steps = 1\n"
    extra = {"train.seed": 2, "train.max_steps": 2}
    train = read(tmp_path, text, "train.max_steps=3", "train.max_steps=4", **extra).train
    assert (train.lr, train.seed, train.max_steps) == (1, 2, 4)
    assert read_config(Config, None) == Config()


def test_a_section_keeps_the_defaults_its_parent_gives_it() -> None:
    assert read_config(Config, None, ["model.encoder.sizes=[3]"]).model.encoder == Encoder(num_layers=2, sizes=[3])
    assert keys(Config)["model.encoder.num_layers"].default == 2


def test_extra_takes_python_values() -> None:
    config = read_config(Config, None, (), {"data.cache": Path("x"), "train.betas": (0.5, 1), "data": {"train": "a"}})
    assert (config.data.cache, config.train.betas, config.data.train) == (Path("x"), (0.5, 1.0), "a")
    config = read_config(Config, None, (), {"train.seed": np.int64(3), "train.lr": np.float32(0.5)})
    assert (config.train.seed, config.train.lr) == (3, 0.5)
    with pytest.raises(UserError) as caught:
        read_config(Config, None, (), {"data.files": {"a"}})
    assert str(caught.value) == "data.files={'a'} is of type set. Expected a list, each text."


OVERRIDES: dict[str, Any] = {
    "model.cell=gru": "gru",
    'model.cell="gru"': "gru",
    " model.cell = gru ": "gru",
    "train.lr=3e-4": 3e-4,
    "train.lr=.5": 0.5,
    "train.lr=2.": 2.0,
    "train.lr=1.e-2": 0.01,
    "train.max_steps=1e4": 10000,
    "train.max_steps=1_000": 1000,
    "train.max_steps=none": None,
    "train.clip_norm=None": None,
    "train.decay=none": None,
    "train.batch_size=auto": "auto",
    "train.batch_size=1e2": 100,
    "train.betas=[0, 1]": (0.0, 1.0),
    'data.files=["a", "b"]': ["a", "b"],
    "data.lowercase=true": True,
    "data.lowercase=True": True,
    "data.train=none": None,
    'data.train="none"': "none",
    "data.train=true": "true",
    "data.train=2024": "2024",
    "data.train=1e4": "1e4",
    "data.train=2024-01-01": "2024-01-01",
    "data.train=a=b": "a=b",
    "data.train=[a": "[a",
    "data.train=": "",
    "data.train= ": " ",
    'data.train="a"\nb=1': '"a"\nb=1',
    "data.cache=3": Path("3"),
    "model.peephole=true": True,
    "model.peephole=previous": "previous",
}


@pytest.mark.parametrize("override", OVERRIDES)
def test_values_of_overrides(override: str) -> None:
    section, name = override.split("=")[0].strip().split(".")
    value = getattr(getattr(read_config(Config, None, [override]), section), name)
    assert value == OVERRIDES[override]
    assert type(value) is type(OVERRIDES[override])


def test_none_in_a_file(tmp_path: Path) -> None:
    config = read(tmp_path, '[train]\nclip_norm = "none"\ndecay = "None"\n[data]\ntrain = "none"')
    assert (config.train.clip_norm, config.train.decay, config.data.train) == (None, None, "none")


def test_apply_changes_and_checks() -> None:
    config = apply(Config(task="x"), {"train.lr": 1, "train.max_steps": 5, "model.encoder.num_layers": 3})
    assert (config.task, config.train.lr, config.train.max_steps, config.model.encoder.num_layers) == ("x", 1, 5, 3)
    assert apply(config, {"train.max_steps": None}).train.max_steps is None
    with pytest.raises(UserError) as caught:
        apply(config, {"lr": 1, "train.lr": 0})
    assert str(caught.value) == (
        "The config has 2 mistakes:\n"
        "  Unknown key 'lr'. Did you mean 'train.lr'?\n"
        "  train.lr=0 is out of range. Expected a number above 0."
    )


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
def test_what_is_written_is_read_again(
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
