"""Writing token by token, many prompts at once."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from unrolled.errors import UserError
from unrolled.search.blocking import repeated_ngrams
from unrolled.search.constraints import Constraint
from unrolled.search.tokens.sampling import Sampling, choose
from unrolled.search.tokens.token_model import PrefillModel, TokenModel, TokenStep, checked_step, is_whole, select

StoppedBy = Literal["end", "stop", "length"]  # an end token, the stop condition, max_tokens
StopCondition = Callable[[int, Sequence[int]], bool]


class Token(NamedTuple):
    """A new token of one row. `log_prob` is the model's own, before temperature and filters."""

    row: int  # which prompt it continues
    id: int
    log_prob: float
    stopped_by: StoppedBy | None = None  # set on a row's last token


@dataclass(frozen=True)
class Sample:
    """What was written after one prompt."""

    tokens: list[int]  # without the prompt and without the end token
    log_prob: float  # of these tokens and the end token, if there was one, by the model alone
    stopped_by: StoppedBy


def generate(
    model: TokenModel,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    memory: Any = None,
    sampling: Sampling = Sampling(),  # noqa: B008, it is frozen
    end_tokens: Collection[int] = (),
    stop: StopCondition | None = None,
    seeds: int | Sequence[int] | None = None,
    forbidden: Collection[int] = (),
    constraint: Constraint | None = None,
    min_tokens: int = 0,
    no_repeat_ngram: int = 0,
) -> Iterator[list[Token]]:
    """Continues every prompt, yielding after each step the new token of each row that is still running.

    Rows leave when they choose one of `end_tokens`, when `stop(row, tokens)` is true of the tokens written so far,
    or after `max_tokens`. Tokens in `forbidden` are never chosen, nor those that the `constraint` does not allow after
    the prompt and what was written. No end token comes before `min_tokens` others, and with `no_repeat_ngram=3` no
    three tokens in a row occur twice, those of the prompt counted. `memory`, if any, has a row for each prompt and goes
    to `model.start`.

    Each row draws from a random generator of its own: a prompt with its seed gives the same tokens alone and in any
    batch (as far as the model's own numbers do not depend on the batch). A whole number s gives row i the seed
    s + i; None draws the seeds from torch's generator, so that `torch.manual_seed` decides.

    Prompts may differ in length. Where the model has no `prefill`, each step feeds every row the next token of its
    prompt or, once that is over, the token it has just chosen: short prompts start, and end, earlier.

    >>> class Count:
    ...     def start(self, memory):
    ...         return None
    ...     def step(self, tokens, state):
    ...         return TokenStep(torch.eye(5)[(tokens + 1) % 5].log(), state)
    >>> for step in generate(Count(), [[0], [0, 1, 2]], max_tokens=3, end_tokens=[4]):
    ...     print([(token.row, token.id, token.stopped_by) for token in step])
    [(0, 1, None)]
    [(0, 2, None)]
    [(0, 3, 'length'), (1, 3, None)]
    [(1, 4, 'end')]
    """
    if not is_whole(max_tokens) or max_tokens < 1:
        raise UserError(
            f"max_tokens={max_tokens!r} is not a whole number from 1 up.", "Use the most tokens a row may get."
        )
    for name, value in (("min_tokens", min_tokens), ("no_repeat_ngram", no_repeat_ngram)):
        if not is_whole(value) or value < 0:
            raise UserError(f"{name}={value!r} is not a whole number from 0 up.", "Use 0 to switch it off.")
    rows = [
        _Row(index, _prompt(index, prompt), Random(seed))
        for index, (prompt, seed) in enumerate(zip(prompts, _seeds(seeds, len(prompts)), strict=True))
    ]
    limits = _Limits(max_tokens, frozenset(end_tokens), stop, tuple(forbidden), min_tokens, no_repeat_ngram)
    return _run(model, rows, memory, sampling, limits, None if constraint is None else _Guard(constraint, rows))


def sample(
    model: TokenModel,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    memory: Any = None,
    sampling: Sampling = Sampling(),  # noqa: B008, it is frozen
    end_tokens: Collection[int] = (),
    stop: StopCondition | None = None,
    seeds: int | Sequence[int] | None = None,
    forbidden: Collection[int] = (),
    constraint: Constraint | None = None,
    min_tokens: int = 0,
    no_repeat_ngram: int = 0,
) -> list[Sample]:
    """What `generate` writes, all at once: one Sample for each prompt, in their order.

    >>> class Coin:
    ...     def start(self, memory):
    ...         return None
    ...     def step(self, tokens, state):
    ...         return TokenStep(torch.full((len(tokens), 2), 0.5).log(), state)
    >>> sample(Coin(), [[0]], max_tokens=8, seeds=1)
    [Sample(tokens=[0, 1, 1, 0, 0, 0, 1, 1], log_prob=-5.545..., stopped_by='length')]
    """
    samples: dict[int, Sample] = {}
    tokens: list[list[int]] = [[] for _ in prompts]
    log_probs = [0.0] * len(tokens)
    for step in generate(
        model,
        prompts,
        max_tokens=max_tokens,
        memory=memory,
        sampling=sampling,
        end_tokens=end_tokens,
        stop=stop,
        seeds=seeds,
        forbidden=forbidden,
        constraint=constraint,
        min_tokens=min_tokens,
        no_repeat_ngram=no_repeat_ngram,
    ):
        for token in step:
            log_probs[token.row] += token.log_prob
            if token.stopped_by != "end":
                tokens[token.row].append(token.id)
            if token.stopped_by is not None:
                samples[token.row] = Sample(tokens[token.row], log_probs[token.row], token.stopped_by)
    return [samples[row] for row in range(len(tokens))]


@dataclass
class _Row:
    index: int
    prompt: list[int]
    random: Random
    fed: int = 0  # how many tokens of the prompt the model has read
    tokens: list[int] = field(default_factory=list)

    @property
    def writing(self) -> bool:
        return self.fed == len(self.prompt)


@dataclass(frozen=True)
class _Limits:
    max_tokens: int
    end_tokens: frozenset[int]
    stop: StopCondition | None
    forbidden: tuple[int, ...]
    min_tokens: int
    no_repeat_ngram: int

    def masked(self, log_probs: Tensor, rows: list[_Row]) -> Tensor:
        """The log-probabilities (B, V), -inf at what a row may not write next."""
        device = log_probs.device
        if self.forbidden:
            log_probs = log_probs.index_fill(-1, torch.tensor(self.forbidden, device=device), -torch.inf)
        if self.min_tokens or self.no_repeat_ngram:
            blocked = torch.stack([self._blocked(row, log_probs.shape[-1]) for row in rows])  # (B, V)
            log_probs = log_probs.masked_fill(blocked.to(device), -torch.inf)
        return log_probs

    def _blocked(self, row: _Row, vocabulary: int) -> Tensor:
        """(V,), True at ends that come too soon and at what would repeat an n-gram."""
        blocked = torch.zeros(vocabulary, dtype=torch.bool)
        if self.no_repeat_ngram:
            (blocked,) = repeated_ngrams(torch.tensor([row.prompt + row.tokens]), self.no_repeat_ngram, vocabulary)
        if len(row.tokens) < self.min_tokens:
            blocked[list(self.end_tokens)] = True
        return blocked

    def stopped_by(self, row: _Row) -> StoppedBy | None:
        if row.tokens[-1] in self.end_tokens:
            return "end"
        if self.stop is not None and self.stop(row.index, row.tokens):
            return "stop"
        return "length" if len(row.tokens) == self.max_tokens else None


class _Guard:
    """A constraint and its state for each row, which has read the row's whole prompt."""

    def __init__(self, constraint: Constraint, rows: list[_Row]) -> None:
        self._constraint = constraint
        self._states = {row.index: constraint.initial(1) for row in rows}
        for row in rows:
            for token in row.prompt:
                self._advance(row, token)

    def masked(self, log_probs: Tensor, rows: list[_Row]) -> Tensor:
        allowed = torch.cat([self._constraint.allowed(self._states[row.index]) for row in rows])  # (B, V)
        return log_probs.masked_fill(~allowed.to(log_probs.device), -torch.inf)

    def advance(self, rows: list[_Row], tokens: list[int]) -> None:
        for row, token in zip(rows, tokens, strict=True):
            self._advance(row, token)

    def _advance(self, row: _Row, token: int) -> None:
        self._states[row.index] = self._constraint.advance(self._states[row.index], torch.tensor([token]))


# no_grad wraps each resumption of the generator: between two steps the caller's own mode holds.
@torch.no_grad()
def _run(
    model: TokenModel, rows: list[_Row], memory: Any, sampling: Sampling, limits: _Limits, guard: _Guard | None
) -> Iterator[list[Token]]:
    if not rows:
        return
    step = _first(model, rows, model.start(memory))
    _check_ids(rows, limits.forbidden, vocabulary=step.log_probs.shape[-1])
    seen = _seen(rows, step.log_probs) if sampling.repetition_penalty != 1 else None
    while True:
        news = _choose(rows, step.log_probs, seen, sampling, limits, guard)
        if news:
            yield news
        ended = {token.row for token in news if token.stopped_by is not None}
        state = step.state
        if ended:
            running = [i for i, row in enumerate(rows) if row.index not in ended]
            rows = [rows[i] for i in running]
            if not rows:
                return
            state, seen = select((state, seen), torch.tensor(running, device=step.log_probs.device))
        step = _next(model, rows, state)


def _first(model: TokenModel, rows: list[_Row], state: Any) -> TokenStep:
    """Feeds whole prompts where the model can read them, their first tokens where not."""
    if not isinstance(model, PrefillModel):
        return _next(model, rows, state)
    lengths = [len(row.prompt) for row in rows]
    padded = [row.prompt + [0] * (max(lengths) - len(row.prompt)) for row in rows]
    device = getattr(model, "device", None)
    step = model.prefill(torch.tensor(padded, device=device), torch.tensor(lengths, device=device), state)
    for row in rows:
        row.fed = len(row.prompt)
    return checked_step(step, len(rows), "prefill")


def _next(model: TokenModel, rows: list[_Row], state: Any) -> TokenStep:
    """Feeds each row the next token of its prompt, or the one it has just chosen."""
    tokens = []
    for row in rows:
        if row.writing:
            tokens.append(row.tokens[-1])
        else:
            tokens.append(row.prompt[row.fed])
            row.fed += 1
    step = model.step(torch.tensor(tokens, device=getattr(model, "device", None)), state)
    return checked_step(step, len(rows), "step")


def _choose(
    rows: list[_Row],
    log_probs: Tensor,
    seen: Tensor | None,
    sampling: Sampling,
    limits: _Limits,
    guard: _Guard | None,
) -> list[Token]:
    """A new token for every row whose prompt has been read; `seen` is brought up to date."""
    places = [i for i, row in enumerate(rows) if row.writing]
    if not places:
        return []
    device = log_probs.device
    seen_here = seen
    if len(places) < len(rows):
        log_probs, seen_here = select((log_probs, seen), torch.tensor(places, device=device))
    allowed = limits.masked(log_probs, [rows[i] for i in places])
    if guard is not None:
        allowed = guard.masked(allowed, [rows[i] for i in places])
    tokens = choose(sampling, allowed, seen_here, [rows[i].random.random() for i in places])
    if -1 in tokens:
        broken = tokens.index(-1)
        raise _no_choice(rows[places[broken]], allowed[broken])
    if guard is not None:
        guard.advance([rows[i] for i in places], tokens)
    if seen is not None:
        seen[places, tokens] = True
    news = []
    for i, token, log_prob in zip(places, tokens, _picked(log_probs, tokens), strict=True):
        row = rows[i]
        row.tokens.append(token)
        news.append(Token(row.index, token, log_prob, limits.stopped_by(row)))
    return news


def _picked(log_probs: Tensor, tokens: list[int]) -> list[float]:
    """Each row's value at its token."""
    index = torch.tensor(tokens, device=log_probs.device).unsqueeze(-1)  # (B, 1)
    return log_probs.gather(-1, index).squeeze(-1).tolist()


def _no_choice(row: _Row, allowed: Tensor) -> UserError:
    where = f"for token {len(row.tokens) + 1} after prompts[{row.index}]"
    if allowed.isnan().any():
        return UserError(
            f"The model's log-probabilities {where} contain NaN.",
            "Its weights may not be finite: use a checkpoint from before the loss became NaN.",
        )
    return UserError(
        f"No token is left to choose {where}: all have probability 0 or are forbidden.", "Forbid fewer tokens."
    )


def _seen(rows: list[_Row], log_probs: Tensor) -> Tensor:
    """(B, V), True at the tokens of each row's prompt."""
    seen = torch.zeros_like(log_probs, dtype=torch.bool)
    for i, row in enumerate(rows):
        seen[i, row.prompt] = True
    return seen


def _prompt(index: int, prompt: Sequence[int]) -> list[int]:
    if isinstance(prompt, str):
        raise UserError(f"prompts[{index}] is the text {prompt!r}, expected tokens.", "Encode it first.")
    if not hasattr(prompt, "__len__"):
        raise UserError(
            f"prompts[{index}] is {prompt!r}, expected a sequence of tokens.", "Put a single prompt into a list."
        )
    if len(prompt) == 0:
        raise UserError(
            f"prompts[{index}] is empty: the model has nothing to continue.", "Begin it with a start token."
        )
    for token in prompt:
        if not is_whole(token):
            raise UserError(f"prompts[{index}] holds {token!r}, expected whole numbers.", "Encode the text first.")
    return [operator.index(token) for token in prompt]


def _seeds(seeds: int | Sequence[int] | None, count: int) -> list[int]:
    if seeds is None:
        return [int(seed) for seed in torch.randint(2**63 - 1, (count,))]
    given = list(seeds) if isinstance(seeds, Sequence) else [seeds]
    for seed in given:
        if not is_whole(seed) or seed < 0:
            raise UserError(f"seed {seed!r} is not a whole number from 0 up.", "Use one such as 1.")
    if not isinstance(seeds, Sequence):
        return [operator.index(seeds) + row for row in range(count)]
    if len(given) != count:
        raise UserError(f"{len(given)} seeds were given for {count} prompts.", "Give one for each, or one number.")
    return [operator.index(seed) for seed in given]


def _check_ids(rows: list[_Row], forbidden: Collection[int], vocabulary: int) -> None:
    """The vocabulary's size is known only after the model's first step."""
    named = [(f"prompts[{row.index}]", row.prompt) for row in rows] + [("forbidden", list(forbidden))]
    for name, tokens in named:
        for token in tokens:
            if not 0 <= token < vocabulary:
                raise UserError(
                    f"{name} holds token {token}, but the model knows {vocabulary} tokens.",
                    f"Use tokens from 0 to {vocabulary - 1}.",
                )
