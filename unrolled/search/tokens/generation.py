"""Writing token by token, many prompts at once."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, NamedTuple

import numpy as np

from unrolled.errors import UserError
from unrolled.search.arrays import Array, arrays_for, arrays_of
from unrolled.search.limits import Limits, check_tokens
from unrolled.search.scorers.scorer import Scorers
from unrolled.search.tokens.prompts import checked_prompt, row_seeds
from unrolled.search.tokens.sampling import Sampling, choose
from unrolled.search.tokens.token_model import Graph, PrefillModel, TokenModel, TokenStep, checked_step, select

StoppedBy = Literal["end", "stop", "length"]  # an end token, the stop condition, max_tokens
StopCondition = Callable[[int, Sequence[int]], bool]


class Token(NamedTuple):
    """A new token of one row. `log_prob` is the model's own, before temperature and filters."""

    row: int  # the number of its prompt
    id: int
    log_prob: float
    stopped_by: StoppedBy | None = None  # set on a row's last token
    top: tuple[tuple[int, float], ...] = ()  # the likeliest tokens in its place, by the model alone; see `generate`


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
    graph: Graph = "auto",
    top: int = 0,
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

    On a GPU the steps of our networks run in CUDA graphs, some tokens ahead of the caller: see docs/gpu.md. `graph`
    "off" runs them one by one, and "steady" takes the same steps of fixed shapes on a CPU too. With `top` every token
    says which were the likeliest in its place; steps then run one by one.

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
    writer = _Writer(model, limits, sampling, stop, arrays_for(model), graph, top)
    rows = _rows(prompts, limits, seeds, writer.arrays)
    # each resumption of the generator runs without gradients: between two steps the caller's own mode holds
    written: Iterator[list[Token]] = writer.arrays.without_gradients(_run)(writer, rows, memory)
    return written


def _rows(
    prompts: Sequence[Sequence[int]], limits: Limits, seeds: int | Sequence[int] | None, arrays: Any
) -> list[_Row]:
    lengths = limits.lengths(len(prompts))
    return [
        _Row(index, checked_prompt(index, prompt), Random(seed), most)
        for index, (prompt, seed, most) in enumerate(
            zip(prompts, row_seeds(seeds, len(prompts), arrays), lengths, strict=True)
        )
    ]


def sample(
    model: TokenModel,
    prompts: Sequence[Sequence[int]],
    limits: Limits,
    *,
    memory: Any = None,
    sampling: Sampling = Sampling(),  # noqa: B008, it is frozen
    stop: StopCondition | None = None,
    seeds: int | Sequence[int] | None = None,
    graph: Graph = "auto",
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
    writer = _Writer(model, limits, sampling, stop, arrays_for(model), graph)
    rows = _rows(prompts, limits, seeds, writer.arrays)
    written: list[Sample] = writer.arrays.without_gradients(_sampled)(writer, rows, memory)
    return written


def _sampled(writer: _Writer, rows: list[_Row], memory: Any) -> list[Sample]:
    if rows and writer.stop is None and (steady := writer.steady()) is not None:
        return _sampled_ahead(writer, rows, memory, *steady)
    samples: dict[int, Sample] = {}
    log_probs = [0.0] * len(rows)
    number, tokens = len(rows), {row.index: row.tokens for row in rows}
    for step in _run(writer, rows, memory):
        for token in step:
            log_probs[token.row] += token.log_prob
            if token.stopped_by is not None:
                samples[token.row] = _sample(tokens[token.row], log_probs[token.row], token.stopped_by)
    return [samples[row] for row in range(number)]


def _sample(tokens: list[int], log_prob: float, stopped_by: StoppedBy) -> Sample:
    return Sample(tokens[:-1] if stopped_by == "end" else tokens, log_prob, stopped_by)


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
    graph: Graph = "off"
    top: int = 0

    def steady(self) -> Any:
        """The model and its recorded searches, where tokens can be chosen in steps of fixed shapes; otherwise None."""
        model, limits = self.model, self.limits
        on_gpu = getattr(getattr(model, "device", None), "type", None) == "cuda"
        if self.graph == "off" or self.top or not (on_gpu or self.graph == "steady"):
            return None
        if limits.scorers or limits.no_repeat_ngram or limits.prefixes is not None:
            return None  # these depend on what was written
        from unrolled.search.tokens.steady import SteadyModel

        if not isinstance(model, SteadyModel) or not isinstance(model, PrefillModel) or model.graphs is None:
            return None
        return model, model.graphs

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
    step, seen = _begun(writer, rows, memory)
    steady = writer.steady()
    while True:
        news = _choose(writer, rows, step.log_probs, seen)
        if news:
            yield news
        rows, state, seen = _still_running(writer, rows, news, step.state, seen)
        if not rows:
            return
        if steady is not None:
            yield from _written_ahead(writer, rows, state, seen, *steady)
            return
        step = _next(writer.model, rows, state, writer.arrays)


def _begun(writer: _Writer, rows: list[_Row], memory: Any) -> tuple[TokenStep, Array | None]:
    """The first step, and the tokens that were seen in the prompts."""
    step = _first(writer.model, rows, writer.model.start(memory), writer.arrays)
    writer.begin(rows, step.log_probs)
    return step, _seen(rows, step.log_probs) if writer.sampling.repetition_penalty != 1 else None


def _still_running(
    writer: _Writer, rows: list[_Row], news: list[Token], state: Any, seen: Array | None
) -> tuple[list[_Row], Any, Array | None]:
    """The rows that go on after these tokens, with their states."""
    ended = {token.row for token in news if token.stopped_by is not None}
    if not ended:
        return rows, state, seen
    writer.drop(rows, ended)
    running = [i for i, row in enumerate(rows) if row.index not in ended]
    if not running:
        return [], None, None
    state, seen = select((state, seen), writer.arrays.indices(running))
    return [rows[i] for i in running], state, seen


@contextmanager
def _ahead(writer: _Writer, rows: list[_Row], state: Any, seen: Any, model: Any, cache: Any) -> Iterator[Any]:
    """Rows that have written their first token, in steps of fixed shapes."""
    from unrolled.search.tokens.steady_sampling import SampledAhead

    ahead = SampledAhead(model, cache, writer.sampling, writer.limits, [row.random for row in rows])
    try:
        steps = max(row.most - len(row.tokens) for row in rows)
        ahead.begin(state, steps, [row.tokens[-1] for row in rows], len(rows[0].tokens), seen)
        yield ahead
    finally:
        ahead.close()


def _written_ahead(
    writer: _Writer, rows: list[_Row], state: Any, seen: Array | None, model: Any, cache: Any
) -> Iterator[list[Token]]:
    """The further tokens of rows, chosen some steps ahead."""
    with _ahead(writer, rows, state, seen, model, cache) as ahead:
        columns = list(range(len(rows)))  # of the running rows in a block
        while True:
            block = ahead.read(more=2 * len(rows) > ahead.size)
            if block is None:  # a smaller batch goes on
                ahead.keep(columns)
                columns = list(range(len(rows)))
                continue
            for tokens, log_probs in zip(block.tokens.tolist(), block.log_probs.tolist(), strict=True):
                news = []
                for row, column in zip(rows, columns, strict=True):
                    if tokens[column] < 0:
                        raise _no_choice(row.index, len(row.tokens) + 1, nan=math.isnan(log_probs[column]))
                    row.tokens.append(tokens[column])
                    news.append(Token(row.index, tokens[column], log_probs[column], writer.stopped_by(row)))
                yield news
                going = [i for i, token in enumerate(news) if token.stopped_by is None]
                rows, columns = [rows[i] for i in going], [columns[i] for i in going]
                if not rows:
                    return


def _sampled_ahead(writer: _Writer, rows: list[_Row], memory: Any, model: Any, cache: Any) -> list[Sample]:
    """The outputs of rows in steps of fixed shapes, read as arrays, without a look at single tokens."""
    step, seen = _begun(writer, rows, memory)
    first = _choose(writer, rows, step.log_probs, seen)
    number = len(rows)
    samples = {one.row: _sample([one.id], one.log_prob, one.stopped_by) for one in first if one.stopped_by is not None}
    rows, state, seen = _still_running(writer, rows, first, step.state, seen)
    if not rows:
        return [samples[row] for row in range(number)]
    from unrolled.search.tokens.steady_sampling import read_whole

    log_probs = {one.row: one.log_prob for one in first}
    with _ahead(writer, rows, state, seen, model, cache) as ahead:
        for row, tokens, more, ended in read_whole(ahead, [row.most - 1 for row in rows], writer.limits.end):
            one = rows[row]
            if tokens[-1] < 0:
                raise _no_choice(one.index, len(tokens) + 1, nan=math.isnan(more[-1]))
            # added one after the other, as tokens come
            total = float(np.cumsum(np.concatenate([[log_probs[one.index]], more]))[-1])
            samples[one.index] = _sample([*one.tokens, *tokens], total, "end" if ended else "length")
    return [samples[row] for row in range(number)]


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
        row, nan = chosen[broken], bool(arrays_of(allowed).isnan(allowed[broken]).any())
        raise _no_choice(row.index, len(row.tokens) + 1, nan=nan)
    if seen is not None:
        seen[places, tokens] = True
    for row, token in zip(chosen, tokens, strict=True):
        row.tokens.append(token)
    writer.advance(chosen)
    picked = writer.arrays.gather(log_probs, writer.arrays.tensor(tokens)[:, None])[:, 0].tolist()
    tops = likeliest(log_probs, writer.top) if writer.top else [()] * len(chosen)
    return [
        Token(row.index, row.tokens[-1], log_prob, writer.stopped_by(row), top)
        for row, log_prob, top in zip(chosen, picked, tops, strict=True)
    ]


def likeliest(log_probs: Array, count: int) -> list[tuple[tuple[int, float], ...]]:
    """The likeliest tokens of each row of (B, V) with their log-probabilities, the likeliest first.

    >>> import torch
    >>> likeliest(torch.tensor([[-3.0, -0.25, -2.0]]), 2)
    [((1, -0.25), (2, -2.0))]
    """
    values, tokens = arrays_of(log_probs).topk(log_probs, min(count, log_probs.shape[-1]))
    return [tuple(zip(*row, strict=True)) for row in zip(tokens.tolist(), values.tolist(), strict=True)]


def _no_choice(row: int, token: int, *, nan: bool) -> UserError:
    where = f"for token {token} after prompts[{row}]"
    if nan:
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
