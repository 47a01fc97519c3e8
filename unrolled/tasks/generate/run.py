"""`unrolled run` of a language model: prompts in, texts out as they are written."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unrolled.errors import note
from unrolled.tasks.answer_lines import Format
from unrolled.tasks.generate.log_probs import log_probs_of
from unrolled.tasks.generate.predict import (
    GenerationOptions,
    TextStream,
    direction_of,
    start_token,
    with_words,
    write_texts,
)
from unrolled.tasks.generate.search import Continuation
from unrolled.tasks.runner import Input, Request, Runner, ranked_lines
from unrolled.tasks.shared.error_table import error_table


class GenerateRunner(Runner):
    """Continues prompts."""

    def run(self, request: Request, **options: Any) -> Iterator[str]:
        """A text is written while it is drawn; several, and those of a search, are written when all are done."""
        options = self.prepared(options, request.format)
        chosen = GenerationOptions(**options)
        prompts = list(self.inputs(request)) or [""]
        at_once = chosen.beam is None and len(prompts) == 1 and direction_of(self.model) == "forward"
        if request.format != "text" or not at_once:
            yield from super().run(replace(request, texts=prompts, files=(), lines=()), **options)
            return
        self.remark(self.counts([Input(prompts[0])]))
        pieces = write_texts(self.model, prompts, chosen)
        first = next(pieces, (0, ""))  # reports wrong options before anything is written
        for _, piece in itertools.chain([(0, prompts[0]), first], pieces):
            yield piece
        yield "\n"

    def prepared(self, options: Mapping[str, Any], format: Format) -> dict[str, Any]:
        """The options with the files of the lexicon read, once for all prompts."""
        return {**options, "lexicon": with_words(self.model, GenerationOptions(**options)).lexicon}

    def counts(self, inputs: Sequence[Input]) -> dict[str, int]:
        return {"unknown": sum(self.model.assets.unknowns(one.value) for one in inputs)}

    def remark(self, counts: Mapping[str, int]) -> None:
        if unknown := counts.get("unknown"):
            note(f"{unknown} tokens of the prompts were never seen in training, and are read as <unk>.")

    def draws(self, options: Mapping[str, Any]) -> int:
        return 1 if options.get("beam") is None else 0

    def whole(self, request: Request, options: Mapping[str, Any]) -> None:
        """None: prompts are continued apart."""

    def record(self, one: str, answer: str) -> dict[str, Any]:
        """A prompt and its continuation; of a search also its scores, and its n-best list."""
        if not isinstance(answer, Continuation):
            return {"prompt": one, "text": answer}
        several = (answer, *answer.others) if answer.others else ()
        return {"prompt": one, **_record(answer), "n_best": [_record(each) for each in several]}

    def line(self, one: str, answer: str) -> str:
        """The whole text; of an n-best list, a line for each with its rank and score."""
        if not isinstance(answer, Continuation):
            return self._whole(one, answer) + "\n"
        return ranked_lines(answer, lambda each: self._whole(one, each))

    def _whole(self, prompt: str, answer: str) -> str:
        """Prompt and answer: that of a backward model stands before the prompt."""
        return f"{answer}{prompt}" if direction_of(self.model) == "backward" else f"{prompt}{answer}"

    def report(self, scores: Mapping[str, Any]) -> str:
        """Scores of a text; below them, those of each search for the ends of its lines."""
        shown = super().report(scores)
        return f"{shown}\n\n{error_table(scores['searches'])}" if "searches" in scores else shown

    def log_prob(self, texts: Sequence[str]) -> list[float]:
        """log p of each text as a line of its own, its end included."""
        tokenizer, backward = self.model.assets, direction_of(self.model) == "backward"
        return log_probs_of(self.model, texts, start=start_token(tokenizer), backward=backward)

    def stream(self, **options: Any) -> TextStream:
        return TextStream(self.model)


def _record(answer: Continuation) -> dict[str, Any]:
    return {
        "text": answer.text,
        "score": answer.score,
        "log_prob": answer.log_prob,
        "ended": answer.ended,
        "tokens": answer.tokens,
        **({} if answer.words is None else {"words": [word._asdict() for word in answer.words]}),
    }
