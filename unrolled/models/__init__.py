"""Networks without a task."""

from unrolled.models.language import FeedForwardLM, LanguageModelSettings, RecurrentLM, language_model

__all__ = ["FeedForwardLM", "LanguageModelSettings", "RecurrentLM", "language_model"]
