"""Scorers: what counts beside the model in a search (docs/scorers.md)."""

from unrolled.search.scorers.ranking import Coverage, Length, LengthPenalty, Ranking
from unrolled.search.scorers.repeats import NoRepeats
from unrolled.search.scorers.scorer import Scorer, Scorers
from unrolled.search.scorers.word_list import WordList

__all__ = ["Coverage", "Length", "LengthPenalty", "NoRepeats", "Ranking", "Scorer", "Scorers", "WordList"]
