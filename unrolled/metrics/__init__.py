"""Scores, tested to equal those of the field's own libraries."""

from unrolled.metrics.classes import ClassScores, class_scores, label_scores

__all__ = ["ClassScores", "class_scores", "label_scores"]
