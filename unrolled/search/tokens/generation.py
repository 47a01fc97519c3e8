"""Writing token by token, many prompts at once."""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, NamedTuple

from unrolled.errors import UserError
from unrolled.search.arrays import Array, arrays_for, arrays_of
from unrolled.search.limits import Limits, check_tokens
from unrolled.search.scorers.scorer import Scorers
from unrolled.search.tokens.sampling import Sampling, choose
from unrolled.search.tokens.token_model import PrefillModel, TokenModel, TokenStep, checked_step, is_whole, select

StoppedBy = Literal["end", "stop", "length"]  # an end token, the stop condition, max_tokens
StopCondition = Callable[[int, Sequence[int]], bool]


class Token(NamedTuple):
    """A new token of one row. `log_prob` is the model's own, before temperature and filters."""

    row: int  # the number of its prompt
    id: int
    log_prob: float
    stopped_by: StoppedBy | None = None  # set on a row's last token


@dataclass(frozen=True)
class Sample:
    """The output of one prompt."""

    tokens: list[int]  # without the prompt and without the end token
    log_prob: float  # of these tokens and the end token, if there was one, by the model alone
    stopped_by: StoppedBy


def generate(
    model: TokenModel,
    prompts: Sequence[Sequence[int]],
    limits: Limits,
    *,
    memory: Any = None,
    sampling: Sampling = Sampling(),  # noqa: B008, it is frozen
    stop: StopCondition | None = None,
    seeds: int | Sequence[int] | None = None,
) -> Iterator[list[Token]]:
    """Continues every prompt, yielding after each step the new token of each row that is still running.

    Rows leave when they choose `limits.end`, when `stop(row, tokens)` is true of the tokens written so far, or after
    `limits.max_tokens`. The prompt counts for scorers and for `no_repeat_ngram`. Scorers add to log-probabilities
    before temperature and filters; their `final` is not used. `memory`, if any, has a row for each prompt and goes to
    `model.start`.

    Each row has a random generator of its own: a prompt with its seed gives the same tokens alone and in any
    batch (as far as the model's own numbers do not depend on the batch). A whole number s gives row i the seed
    s + i; None takes the seeds from torch's generator, so that `torch.manual_seed` decides.

    Prompts may differ in length. Where the model has no `prefill`, each step feeds every row the next token of its
    prompt or, once that is over, the token it has just chosen: short prompts start, and end, earlier.

    >>> import torch
    >>> class Count:
    ...     def start(self, memory):
    ...         return None
    ...     def step(self, tokens, state):
    ...         return TokenStep(torch.eye(5)[(tokens + 1) % 5].log(), state)
    >>> for step in generate(Count(), [[0], [0, 1, 2]], Limits(max_tokens=3, end=4)):
    ...     print([(token.row, token.id, token.stopped_by) for token in step])
    [(0, 1, None)]
    [(0, 2, None)]
    [(0, 3, 'length'), (1, 3, None)]
    [(1, 4, 'end')]
    """
    arrays = arrays_for(model)
    rows = [
        _Row(index, _prompt(index, prompt), Random(seed), most)
        for index, (prompt, seed, most) in enumerate(
            zip(prompts, _seeds(seeds, len(prompts), arrays), limits.lengths(len(prompts)), strict=True)
        )
    ]
    # each resumption of the generator runs without gradients: between two steps the caller's own mode holds
    written: Iterator[list[Token]] = arrays.without_gradients(_run)(
        _Writer(model, limits, sampling, stop, arrays), rows, memory
    )
    return written


def sample(
    model: TokenModel,
    prompts: Sequence[Sequence[int]],
    limits: Limits,
    *,
    memory: Any = None,
    sampling: Sampling = Sampling(),  # noqa: B008, it is frozen
    stop: StopCondition | None = None,
    seeds: int | Sequence[int] | None = None,
) -> list[Sample]:
    """The outputs of `generate`, all at once: one Sample for each prompt, in their order.

    >>> import torch
    >>> class Coin:
    ...     def start(self, memory):
    ...         return None
    ...     def step(self, tokens, state):
    ...         return TokenStep(torch.full((len(tokens), 2), 0.5).log(), state)
    >>> sample(Coin(), [[0]], Limits(max_tokens=8), seeds=1)
    [Sample(tokens=[0, 1, 1, 0, 0, 0, 1, 1], log_prob=-5.545..., stopped_by='length')]
    """
    samples: dict[int, Sample] = {}
    tokens: list[list[int]] = [[] for _ in prompts]
    log_probs = [0.0] * len(tokens)
    for step in generate(model, prompts, limits, memory=memory, sampling=sampling, stop=stop, seeds=seeds):
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
    most: int  # tokens
    fed: int = 0  # tokens of the prompt that the model has read
    tokens: list[int] = field(default_factory=list)

    @property
    def writing(self) -> bool:
        return self.fed == len(self.prompt)


@dataclass
class _Writer:
    """A choice of tokens for rows, and the states of the scorers."""

    model: TokenModel
    limits: Limits
    sampling: Sampling
    stop: StopCondition | None
    arrays: Any

    def begin(self, rows: list[_Row], log_probs: Array) -> None:
        """Checks tokens and lets the scorers read the prompts.

        Rows whose prompts have the same length always write at the same time: they share a batch of states.
        """
        vocabulary = log_probs.shape[-1]
        for row in rows:
            check_tokens(f"prompts[{row.index}]", row.prompt, vocabulary)
        self.limits.check_ids(vocabulary)
        self.scorers = Scorers(self.limits.all_scorers(vocabulary), self.arrays)
        self.states: dict[int, Any] = {}  # by length of prompt
        for length, group in _by_length(rows).items():
            states = self.scorers.initial(len(group))
            for tokens in zip(*(row.prompt for row in group), strict=True):
                states = self.scorers.advance(states, self.arrays.tensor(tokens))
            self.states[length] = states

    def allowed(self, rows: list[_Row], log_probs: Array) -> Array:
        """The log-probabilities (B, V) with what the scorers add, -inf at tokens that may not come."""
        allowed, vocabulary = log_probs, log_probs.shape[-1]
        masked = None
        if self.scorers.scorers:
            places = {row.index: i for i, row in enumerate(rows)}
            allowed, masked = self.arrays.copy(log_probs), self.arrays.zeros(log_probs.shape, "bool")
            for length, group in _by_length(rows).items():
                added, blocked = self.scorers.next_scores(self.states[length], len(group), vocabulary)
                here = [places[row.index] for row in group]
                if added is not None:
                    allowed[here] += added
                if blocked is not None:
                    masked[here] = blocked
        times = [len(row.tokens) for row in rows]
        blocked = self.limits.blocked([row.index for row in rows], times, vocabulary, self.arrays, masked)
        return self.arrays.masked_fill(allowed, blocked, -math.inf)

    def advance(self, rows: list[_Row]) -> None:
        """Tells the scorers the rows' last tokens."""
        for length, group in _by_length(rows).items() if self.scorers.scorers else ():
            tokens = self.arrays.tensor([row.tokens[-1] for row in group])
            self.states[length] = self.scorers.advance(self.states[length], tokens)

    def drop(self, rows: list[_Row], ended: set[int]) -> None:
        """Forgets the scorers' states of rows that have ended."""
        for length, group in _by_length(rows).items() if self.scorers.scorers else ():
            kept = [i for i, row in enumerate(group) if row.index not in ended]
            self.states[length] = select(self.states[length], self.arrays.indices(kept))

    def stopped_by(self, row: _Row) -> StoppedBy | None:
        if row.tokens[-1] == self.limits.end:
            return "end"
        if self.stop is not None and self.stop(row.index, row.tokens):
            return "stop"
        return "length" if len(row.tokens) == row.most else None


def _by_length(rows: list[_Row]) -> dict[int, list[_Row]]:
    groups: defaultdict[int, list[_Row]] = defaultdict(list)
    for row in rows:
        groups[len(row.prompt)].append(row)
    return groups


def _run(writer: _Writer, rows: list[_Row], memory: Any) -> Iterator[list[Token]]:
    if not rows:
        return
    model, arrays = writer.model, writer.arrays
    step = _first(model, rows, model.start(memory), arrays)
    writer.begin(rows, step.log_probs)
    seen = _seen(rows, step.log_probs) if writer.sampling.repetition_penalty != 1 else None
    while True:
        news = _choose(writer, rows, step.log_probs, seen)
        if news:
            yield news
        ended = {token.row for token in news if token.stopped_by is not None}
        state = step.state
        if ended:
            writer.drop(rows, ended)
            running = [i for i, row in enumerate(rows) if row.index not in ended]
            rows = [rows[i] for i in running]
            if not rows:
                return
            state, seen = select((state, seen), arrays.indices(running))
        step = _next(model, rows, state, arrays)


def _first(model: TokenModel, rows: list[_Row], state: Any, arrays: Any) -> TokenStep:
    """Feeds whole prompts where the model can read them, their first tokens where not."""
    if not isinstance(model, PrefillModel):
        return _next(model, rows, state, arrays)
    lengths = [len(row.prompt) for row in rows]
    padded = [row.prompt + [0] * (max(lengths) - len(row.prompt)) for row in rows]
    step = model.prefill(arrays.tensor(padded), arrays.tensor(lengths), state)
    for row in rows:
        row.fed = len(row.prompt)
    return checked_step(step, len(rows), "prefill")


def _next(model: TokenModel, rows: list[_Row], state: Any, arrays: Any) -> TokenStep:
    """Feeds each row the next token of its prompt, or the one it has just chosen."""
    tokens = []
    for row in rows:
        if row.writing:
            tokens.append(row.tokens[-1])
        else:
            tokens.append(row.prompt[row.fed])
            row.fed += 1
    step = model.step(arrays.tensor(tokens), state)
    return checked_step(step, len(rows), "step")


def _choose(writer: _Writer, rows: list[_Row], log_probs: Array, seen: Array | None) -> list[Token]:
    """A new token for every row whose prompt has been read; `seen` is brought up to date."""
    places = [i for i, row in enumerate(rows) if row.writing]
    if not places:
        return []
    chosen, seen_here = [rows[i] for i in places], seen
    if len(places) < len(rows):
        log_probs, seen_here = select((log_probs, seen), writer.arrays.indices(places))
    allowed = writer.allowed(chosen, log_probs)
    tokens = choose(writer.sampling, allowed, seen_here, [row.random.random() for row in chosen])
    if -1 in tokens:
        broken = tokens.index(-1)
        raise _no_choice(chosen[broken], allowed[broken])
    if seen is not None:
        seen[places, tokens] = True
    for row, token in zip(chosen, tokens, strict=True):
        row.tokens.append(token)
    writer.advance(chosen)
    picked = writer.arrays.gather(log_probs, writer.arrays.tensor(tokens)[:, None])[:, 0].tolist()
    return [
        Token(row.index, row.tokens[-1], log_prob, writer.stopped_by(row))
        for row, log_prob in zip(chosen, picked, strict=True)
    ]


def _no_choice(row: _Row, allowed: Array) -> UserError:
    where = f"for token {len(row.tokens) + 1} after prompts[{row.index}]"
    if arrays_of(allowed).isnan(allowed).any():
        return UserError(
            f"The model's log-probabilities {where} contain NaN.",
            "Its weights may not be finite: use a checkpoint from before the loss became NaN.",
        )
    return UserError(
        f"No token is left to choose {where}: all have probability 0 or are forbidden.", "Forbid fewer tokens."
    )


def _seen(rows: list[_Row], log_probs: Array) -> Array:
    """(B, V), True at the tokens of each row's prompt."""
    seen = arrays_of(log_probs).zeros(log_probs.shape, "bool")
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


def _seeds(seeds: int | Sequence[int] | None, count: int, arrays: Any) -> list[int]:
    if seeds is None:
        return arrays.seeds(count)  # type: ignore[no-any-return]
    given = list(seeds) if isinstance(seeds, Sequence) else [seeds]
    for seed in given:
        if not is_whole(seed) or seed < 0:
            raise UserError(f"seed {seed!r} is not a whole number from 0 up.", "Use one such as 1.")
    if not isinstance(seeds, Sequence):
        return [operator.index(seeds) + row for row in range(count)]
    if len(given) != count:
        raise UserError(f"{len(given)} seeds were given for {count} prompts.", "Give one for each, or one number.")
    return [operator.index(seed) for seed in given]
