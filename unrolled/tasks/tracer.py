"""Tracer: a look inside a model on one input, for `unrolled inspect`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.see import ModelTrace
from unrolled.see.options import TraceOption
from unrolled.tasks.runner import Request
from unrolled.text import Vectors


class Example(NamedTuple):
    """An input as `Tracer.trace` takes it, and the correct answer, for its option `truth`."""

    input: Any
    truth: Any = None


class Tracer:
    """Traces a model and shows its vectors. Every method is optional: the default says that the model cannot do it."""

    options: ClassVar[tuple[TraceOption, ...]] = ()

    def __init__(self, model: Model) -> None:
        self.model = model

    def trace(self, inputs: Any, **options: Any) -> ModelTrace:
        """All states, gates, losses and attention on one input, with changes by `options`."""
        raise UserError(f"A model of {self.model.task.name} cannot be traced.")

    def input(self, request: Request) -> Any:
        """The one input of `unrolled inspect`: the first of the request."""
        return next(self.model.runner.inputs(request), "")

    def example(self, examples: Any, number: int) -> Any:
        """A validation example: its input as `trace` takes it, or an `Example`."""
        found = nth(examples, number)
        return getattr(found, "input", found)

    def embed(self, inputs: Any, pooling: str | None = None) -> Any:
        """A vector for each input, if the network has an encoder."""
        raise UserError(f"A model of {self.model.task.name} has no encoder that gives one vector.")

    def word_vectors(self) -> Vectors:
        """The embeddings of the words, or other tokens, if the network has any."""
        raise UserError(
            f"A model of {self.model.task.name} has no word vectors.", "Give one that reads words, or a vectors file."
        )


def nth(examples: Sequence[Any], number: int) -> Any:
    """An example by its number, from 0."""
    if not 0 <= number < len(examples):
        raise UserError(f"There is no example {number}.", f"Expected 0 to {len(examples) - 1:,}.")
    return examples[number]
