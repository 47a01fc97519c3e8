"""Exported models for tests: those that tests/compat stores, one of every kind."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path

from tests.sharing import made_once
from unrolled import api, runtime
from unrolled.model import Model
from unrolled.runtime import RuntimeModel

STORED = Path(__file__).parent.parent / "compat" / "2026-11"
LATER = (STORED.with_name("2026-11-kinds"), STORED.with_name("2026-11-wide"))
KINDS = sorted(path.stem for path in STORED.glob("*.safetensors"))


@functools.cache
def folder_of(kind: str) -> Path:
    """The folder of an exported model; it is written when it is first asked for."""

    def export(folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about its recording
            api.export_onnx(model_of(kind), folder, check=False)

    return made_once(f"{kind}-onnx", export)


@functools.cache
def model_of(kind: str) -> Model:
    """The model itself, with torch."""
    places = (folder / f"{kind}.safetensors" for folder in (STORED, *LATER))
    return api.load(next(path for path in places if path.exists()))


@functools.cache
def exported_of(kind: str) -> RuntimeModel:
    """The exported model in the runtime."""
    return runtime.load(folder_of(kind))
