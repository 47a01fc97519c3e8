"""Weights and limits of a dictionary search."""

from __future__ import annotations

from dataclasses import dataclass

from unrolled.errors import UserError, unknown_name
from unrolled.search.ctc.prefix_beam import MERGES, check_limits
from unrolled.search.lexicon.weights import WordWeights

CLOSED_MARGIN, OPEN_MARGIN = 30.0, 10.0  # nats


@dataclass(frozen=True)
class SearchOptions(WordWeights):
    """Scores are natural logarithms; a sentence's is

    log p(frames | labels) + lm_weight · log p(words) + word_bonus · number of words
    + unknown_penalty · number of words that are not in the lexicon
    """

    beam: int = 100  # most hypotheses after each frame
    per_node: int | None = None  # most of them at one place of the tree
    margin: float | None = None  # most nats below the best; none: see `usual_margin`, and inf for n-best lists
    merge: str = "max"  # of paths that come together the best counts, or their "sum"
    recombine: bool | None = None  # whether histories the model cannot tell apart come together; none: for 1-best only

    def __post_init__(self) -> None:
        check_limits(self.beam, 1, self.margin)
        if self.per_node is not None and self.per_node < 1:
            raise UserError(f"per_node={self.per_node!r} is not a whole number from 1 up.", "Use None for no limit.")
        if self.merge not in MERGES:
            raise unknown_name("merge", self.merge, MERGES)
        super().__post_init__()

    @property
    def usual_margin(self) -> float:
        """The margin for the best reading with a lexicon: as much as one word can add or cost at once.

        Where there are no words but those of the lexicon, a word that is missing has to be read as another, which is
        far below the best for a while. docs/decode.md has what it costs.
        """
        least = CLOSED_MARGIN if self.unknown_penalty is None else OPEN_MARGIN
        return least * max(1.0, self.lm_weight) + abs(self.word_bonus) + abs(self.unknown_penalty or 0.0)

    def recombines(self, n_best: int) -> bool:
        return n_best == 1 and self.merge == "max" if self.recombine is None else self.recombine


def check_n_best(n_best: int, beam: int) -> None:
    """Refuses to give more readings than the search keeps; the wording is that of `Beam`."""
    if n_best > beam:
        raise UserError(f"n_best={n_best} is more than the beam's size={beam}.", f"Use a beam of {n_best}.")
