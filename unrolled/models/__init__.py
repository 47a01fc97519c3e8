"""Networks, independent of tasks."""

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
