"""Scores over a vocabulary: top-k and cross-entropy."""
