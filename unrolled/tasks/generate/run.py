"""`unrolled run` of a language model: prompts in, texts out as they are written."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from unrolled.errors import note
from unrolled.tasks.generate.predict import (
    GenerationOptions,
    TextStream,
    direction_of,
    start_token,
    write_texts,
)
from unrolled.tasks.generate.scores import log_probs_of
from unrolled.tasks.runner import Request, Runner
from unrolled.tasks.shared.dictionary import with_dictionary


class GenerateRunner(Runner):
    """Continues prompts."""

    def run(self, request: Request, **options: Any) -> Iterator[str]:
        """One prompt is continued while the text is written; several are written when all are done."""
        chosen = with_dictionary(GenerationOptions(**options), self.model.assets)
        options = {**options, "lexicon": chosen.lexicon}  # its files are read once for all prompts
        prompts = list(self.inputs(request)) or [""]
        unknown = sum(self.model.assets.unknowns(text) for text in prompts)
        if unknown:
            note(f"{unknown} tokens of the prompts were never seen in training, and are read as <unk>.")
        if request.format != "text" or len(prompts) > 1 or direction_of(self.model) == "backward":
            yield from super().run(replace(request, texts=prompts, files=(), lines=()), **options)
            return
        pieces = write_texts(self.model, prompts, chosen)
        first = next(pieces, (0, ""))  # reports wrong options before anything is written
        for _, piece in itertools.chain([(0, prompts[0]), first], pieces):
            yield piece
        yield "\n"

    def record(self, one: str, answer: str) -> dict[str, Any]:
        return {"prompt": one, "text": answer}

    def line(self, one: str, answer: str) -> str:
        """The whole text: a backward model's answer stands before the prompt."""
        return f"{answer}{one}\n" if direction_of(self.model) == "backward" else f"{one}{answer}\n"

    def log_prob(self, texts: Sequence[str]) -> list[float]:
        """log p of each text as a line of its own, its end included."""
        tokenizer, backward = self.model.assets, direction_of(self.model) == "backward"
        return log_probs_of(self.model, texts, start=start_token(tokenizer), backward=backward)

    def stream(self, **options: Any) -> TextStream:
        return TextStream(self.model)
