"""Models and files that the tests here share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import unrolled
from tests.fitting import fitting
from tests.tasks.recognition import (
    SMALL,
    words,
    write_frames,
    write_lines,
    write_recordings,
)
from unrolled import Model

WRITERS: dict[str, Callable[[Path, list[str]], Path]] = {
    "audio": lambda folder, texts: write_recordings(folder, texts),
    "line": lambda folder, texts: write_lines(folder, texts),
    "frames": lambda folder, texts: write_frames(folder / "train.npz", texts),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recognize")


def learn(place: Path, kind: str, name: str, **changes: Any) -> Model:
    file = (
        WRITERS[kind](place / name, words(80)) if kind != "frames" else write_frames(place / f"{name}.npz", words(80))
    )
    keys = {**SMALL, **{key.replace("__", "."): value for key, value in changes.items()}}
    settings = fitting("recognize", keys, data__kind=kind)
    return unrolled.train("recognize", train=file, valid=file, out=place / f"run-{name}", set=settings, quiet=True)


@pytest.fixture(scope="module")
def listener(place: Path) -> Model:
    return learn(place, "audio", "listener")


@pytest.fixture(scope="module")
def reader(place: Path) -> Model:
    return learn(place, "line", "reader")
