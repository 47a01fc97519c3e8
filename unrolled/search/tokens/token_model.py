"""The model as a search sees it: a state before the first token, and one step for each token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from unrolled.errors import UserError
from unrolled.search.arrays import Array, arrays_of

Graph = Literal["auto", "off", "steady"]
"""Steps of fixed shapes in CUDA graphs: on a GPU, never, or on a CPU too, where they are not recorded."""


class TokenStep(NamedTuple):
    """A model's answer to one more token: the next token's distribution, and a new state."""

    scores: Array  # (B, V), log-probabilities of the next token
    state: Any  # to be handed to the next step: tensors with the batch at dimension 0, nested as `select` allows
    attention: Array | None = None  # (B, S) over the memory's positions, where the model has any
    normalised: bool = True  # False: the scores are log-probabilities up to a constant of each row

    @property
    def log_probs(self) -> Array:
        """(B, V) of the next token."""
        if self.normalised:
            return self.scores
        arrays = arrays_of(self.scores)
        return arrays.log_softmax(arrays.float(self.scores))


class TokenModel(Protocol):
    """A model that continues sequences of tokens.

    `start` makes the state before the first token from what the model reads from (an encoder's output, a carried
    state), which is None for a plain language model. Such a model may also return None and make its zeros in the
    first `step`, where the batch size is known.

    A model on another device than the CPU has an attribute `device`, where its tokens are put. One that takes and gives
    NumPy's arrays has an attribute `arrays`, `unrolled.search.arrays.NUMPY`.
    """

    def start(self, memory: Any) -> Any: ...

    def step(self, tokens: Array, state: Any) -> TokenStep:
        """tokens (B,) int64 → the distribution of the token that follows."""
        ...


@runtime_checkable
class PrefillModel(TokenModel, Protocol):
    """A TokenModel that reads whole prompts faster than token by token."""

    def prefill(self, tokens: Array, lengths: Array, state: Any) -> TokenStep:
        """tokens (B, T) int64, zeros after each row's length; lengths (B,) int64, from 1 to T.

        The distribution and the state are those after each row's last real token, equal to what `step` gives.
        """
        ...


@dataclass(frozen=True)
class Shared:
    """A part of a state that all hypotheses of one input have in common: an encoder's output, projected keys.

    It has one row for each input, however many hypotheses there are: those of one input are rows next to each other of
    the rest of the state, W of each, and a `step` finds W by dividing its rows by those that are shared.
    """

    value: Any


class Rows(tuple[Any, ...]):
    """A part of a state made of Python objects, one for each row.

    >>> import torch
    >>> select(Rows(["a", "b", "c"]), torch.tensor([2, 0, 0]))
    ('c', 'a', 'a')
    """


def select(state: Any, rows: Array, inputs: Array | None = None) -> Any:
    """Gathers `rows` (int64) of every tensor in a state, on dimension 0; a row may be taken more than once.

    A state is a tensor, `Rows`, None, or a tuple, named tuple, list or dictionary of states, or one that is `Shared`:
    of that the rows `inputs` are taken, by default the same ones.

    >>> import torch
    >>> select({"h": torch.tensor([[1.0], [2.0], [3.0]]), "memory": None}, torch.tensor([2, 0, 0]))
    {'h': tensor([[3.], [1.], [1.]]), 'memory': None}
    """
    return mapped(state, lambda leaf: _gather(leaf, rows, rows if inputs is None else inputs))


def reorder(state: Any, rows: Array) -> Any:
    """`select` where hypotheses are replaced by some of the same input: what is `Shared` stays as it is."""
    return mapped(state, lambda leaf: _gather(leaf, rows, None))


def mapped(state: Any, change: Callable[[Any], Any]) -> Any:
    """A state with each of its tensors, `Rows` and `Shared` parts changed."""
    if state is None:
        return None
    if isinstance(state, (Rows, Shared)) or getattr(state, "ndim", 0) > 0:
        return change(state)
    if isinstance(state, dict):
        return {key: mapped(value, change) for key, value in state.items()}
    if isinstance(state, list):
        return [mapped(value, change) for value in state]
    if isinstance(state, tuple):
        values = [mapped(value, change) for value in state]
        return type(state)(*values) if hasattr(state, "_fields") else tuple(values)
    got = "a tensor without dimensions" if hasattr(state, "ndim") else f"{type(state).__name__} {state!r}"
    raise UserError(
        f"A state holds {got}, which has no rows to select.",
        "Use tensors with the batch at dimension 0, Rows, None, or tuples, lists and dictionaries of these.",
    )


def _gather(leaf: Any, rows: Array, shared: Array | None) -> Any:
    if isinstance(leaf, Shared):
        return leaf if shared is None else Shared(select(leaf.value, shared))
    return Rows(leaf[row] for row in rows.tolist()) if isinstance(leaf, Rows) else arrays_of(leaf).rows(leaf, rows)


def checked_step(step: TokenStep, batch: int, method: str) -> TokenStep:
    """A model's step, checked to have a row for each row of the tokens."""
    shape = tuple(step.scores.shape)
    if len(shape) != 2 or shape[0] != batch:
        raise UserError(
            f"The model's {method} gave log_probs of shape {shape}, expected ({batch}, V).",
            "Return one row for each row of the tokens; a memory needs a row for each prompt.",
        )
    return step


def is_whole(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)
