"""Texts that a model wrote, and how `unrolled run` shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError, note
from unrolled.tasks.answer_lines import Format
from unrolled.tasks.runner import PictureRunner, ranked_lines
from unrolled.tasks.shared.dictionary import with_dictionary
from unrolled.tasks.shared.writing import WritingOptions


@dataclass(frozen=True)
class Written:
    """A text that a model wrote, with its scores."""

    text: str
    score: float  # the search ranks by this
    log_prob: float
    ended: bool  # False: it was cut at the maximum length

    def __str__(self) -> str:
        return self.text


One = TypeVar("One", bound=Written)
Item = TypeVar("Item")


def within(block: Callable[[], AbstractContextManager[None]], items: Iterator[Item]) -> Iterator[Item]:
    """The items of a generator, each made inside a block: between two of them the caller's own state holds."""
    while True:
        with block():
            try:
                item = next(items)
            except StopIteration:
                return
        yield item


def note_cut(answers: Sequence[One], what: str) -> Sequence[One]:
    """The same answers; a note says how many were cut."""
    if cut := sum(not answer.ended for answer in answers):
        note(f"{cut} {what} had not ended after the most tokens allowed, and were cut.")
    return answers


class WritingRunner(PictureRunner):
    """Runs of a model that writes text: n-best lists, and attention in records and pictures."""

    needs_attention = ""  # the setting to train with, for the error of a model without attention

    def prepared(self, options: Mapping[str, Any], format: Format) -> dict[str, Any]:
        if options.get("lexicon") is not None:  # files are read once for all inputs
            target = self.model.assets.target
            chosen = with_dictionary(WritingOptions(**options), target.tokenizer, form=target.form, end=target.end)
            options = {**options, "lexicon": chosen.lexicon}
        return dict(options) if format == "text" else {"attention": self.attends, **options}

    def draws(self, options: Mapping[str, Any]) -> int:
        if options.get("temperature") is None:
            return 0
        chosen = WritingOptions(**options)
        return chosen.n_best if chosen.rescore is None else chosen.searched(chosen.n_best, chosen.beam)

    @property
    def attends(self) -> bool:
        return bool(getattr(self.model.network, "attends", False))

    def drawable(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        if not self.attends:
            raise UserError("This model has no attention to show.", f"Train with {self.needs_attention}.")
        return {**options, "attention": True}

    def answer_record(self, answer: Any) -> dict[str, Any]:
        """An answer as part of a record."""
        raise NotImplementedError

    def words_record(self, answer: Any) -> dict[str, Any]:
        """The words of an answer as part of a record, where there is a lexicon."""
        return {} if answer.words is None else {"words": [word._asdict() for word in answer.words]}

    def ranked_record(self, answer: Any) -> dict[str, Any]:
        """An answer and its n-best list, as part of a record."""
        several = (answer, *answer.others) if answer.others else ()
        return {**self.answer_record(answer), "n_best": [self.answer_record(one) for one in several]}

    def line(self, one: Any, answer: Any) -> str:
        return ranked_lines(answer)


def rounded(attention: NDArray[np.float32] | None) -> Any:
    """Attention weights for a record."""
    return None if attention is None else np.round(attention.astype(float), 4).tolist()
