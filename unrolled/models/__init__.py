"""Networks, independent of tasks. Names load at first use: some of the modules need no torch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unrolled.models.language import FeedForwardLM, LanguageStepper, RecurrentLM, language_model, stepper_for
    from unrolled.models.language_base import LanguageModel, LanguageModelSettings
    from unrolled.models.language_transformer import TransformerLM

__all__ = [
    "FeedForwardLM",
    "LanguageModel",
    "LanguageModelSettings",
    "LanguageStepper",
    "RecurrentLM",
    "TransformerLM",
    "language_model",
    "stepper_for",
]


def __getattr__(name: str) -> Any:
    if name in __all__:  # all are known there
        return getattr(importlib.import_module("unrolled.models.language"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
