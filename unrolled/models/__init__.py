"""Networks without a task."""

from unrolled.models.language import (
    FeedForwardLM,
    LanguageModelSettings,
    RecurrentLM,
    Stepping,
    language_model,
    stepping,
)

__all__ = ["FeedForwardLM", "LanguageModelSettings", "RecurrentLM", "Stepping", "language_model", "stepping"]
