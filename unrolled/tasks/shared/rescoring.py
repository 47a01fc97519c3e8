"""Ranking the best outputs of a search again by another model: an n-gram model, or a trained language model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unrolled.errors import UserError
from unrolled.search import NGram, Rescored, rescore
from unrolled.tasks.shared import options as declared

USUAL_WEIGHT, USUAL_CANDIDATES = 0.5, 10


@dataclass(frozen=True)
class RescoringOptions:
    """Values of the options about rescoring. `rescore` is an ARPA file, or has `log_prob(texts)`: an NGram, a Model."""

    rescore: Any = declared.RESCORE.default
    rescore_weight: float | None = declared.RESCORE_WEIGHT.default
    rescore_bonus: float | None = declared.RESCORE_BONUS.default
    candidates: int | None = declared.CANDIDATES.default

    def check_rescoring(self, beam: int | None) -> None:
        """Refuses options without a model to rescore by, and a beam that is too narrow; None: the default beam."""
        for name in ("rescore_weight", "rescore_bonus", "candidates"):
            value = getattr(self, name)
            if value is not None and self.rescore is None:
                raise UserError(f"{name} is for rescoring, and there is no model for it.", "Give one (--rescore).")
            if value is not None and not math.isfinite(value):
                raise UserError(f"{name}={value!r} is not a number.", "Use 0.5 for the weight.")
        declared.CANDIDATES.check(self.candidates)
        if self.rescore is not None and beam is not None and beam < (self.candidates or 2):
            raise UserError(
                f"A beam of {beam} finds {beam} outputs, too few to rescore.",
                f"Use a beam of {self.candidates or USUAL_CANDIDATES}.",
            )

    def searched(self, n_best: int, beam: int | None) -> int:
        """The outputs that are searched for each input."""
        return max(n_best, self.candidates or min(USUAL_CANDIDATES, beam or USUAL_CANDIDATES))


def rescored(
    answers: Sequence[Any],
    options: RescoringOptions,
    n_best: int,
    divisors: Sequence[Sequence[float]] | None = None,
    read: Callable[[Any], str] = lambda answer: answer.text,
) -> list[Any]:
    """Answers, each with its `others`, in the order of their new scores; the `n_best` of each stay.

    All texts of all answers, as `read` gives them, go to the language model at once.
    """
    lists = [[answer, *answer.others] for answer in answers]
    texts = list(dict.fromkeys(read(one) for several in lists for one in several))
    known = _Known(dict(zip(texts, text_scorer(options.rescore).log_prob(texts), strict=True)))
    weight = USUAL_WEIGHT if options.rescore_weight is None else options.rescore_weight
    found = []
    for row, several in enumerate(lists):
        ranked: list[Rescored] = rescore(
            [(read(one), one.score) for one in several],
            known,
            weight=weight,
            word_bonus=options.rescore_bonus or 0.0,
            divisors=None if divisors is None else divisors[row],
        )
        best, *rest = [replace(several[one.place], score=one.score, others=()) for one in ranked[:n_best]]
        found.append(replace(best, others=tuple(rest)))
    return found


@dataclass(frozen=True)
class _Known:
    """Texts whose log-probabilities are known."""

    log_probs: dict[str, float]

    def log_prob(self, texts: Sequence[str]) -> list[float]:
        return [self.log_probs[text] for text in texts]


def text_scorer(given: Any) -> Any:
    """The model that gives texts their log-probabilities: as it is, or an n-gram model from its file."""
    if isinstance(given, str) or hasattr(given, "__fspath__"):
        if str(given).endswith((".arpa", ".arpa.gz")):
            return NGram.load(given)
        raise UserError(
            f"rescore={str(given)!r} is a path, and no .arpa file.", f"Load the model: unrolled.load({str(given)!r})."
        )
    if not hasattr(given, "log_prob"):
        raise UserError(f"rescore={given!r} has no log_prob.", "Use an NGram, or a trained model of generate.")
    return given
