"""Scores: each equal to the field's own library, which the tests hold it to."""

from unrolled.metrics.classes import ClassScores, class_scores, label_scores

__all__ = ["ClassScores", "class_scores", "label_scores"]
