"""Networks without a task."""

from unrolled.models.language import FeedForwardLM, RecurrentLM, Stepping, language_model, stepping
from unrolled.models.language_base import LanguageModel, LanguageModelSettings
from unrolled.models.language_transformer import TransformerLM

__all__ = [
    "FeedForwardLM",
    "LanguageModel",
    "LanguageModelSettings",
    "RecurrentLM",
    "Stepping",
    "TransformerLM",
    "language_model",
    "stepping",
]
