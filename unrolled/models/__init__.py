"""Networks, independent of tasks. Names load at first use: some of the modules need no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unrolled.lazy import lazy_names

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

__getattr__ = lazy_names(
    __name__,
    {
        "unrolled.models.language": "FeedForwardLM LanguageStepper RecurrentLM language_model stepper_for",
        "unrolled.models.language_base": "LanguageModel LanguageModelSettings",
        "unrolled.models.language_transformer": "TransformerLM",
    },
)
