"""Every mistake in a file or an override is reported in plain words, all of them at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.sections import Config, message, read
from unrolled.config import read_config
from unrolled.errors import UserError

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
