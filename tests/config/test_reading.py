"""Files, extra values and overrides: the last value wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.config.sections import Config, Encoder, read
from unrolled.config import apply, keys, read_config
from unrolled.errors import UserError


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
