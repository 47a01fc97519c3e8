"""What every task that writes texts shares: targets and their loss, the options of a search, running free."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrolled.data import Batch
from unrolled.errors import unknown_name
from unrolled.kernels.vocabulary import linear_cross_entropy
from unrolled.models.encoder import Encoded
from unrolled.models.inputs import padded
from unrolled.search import Beam, Found, Hypothesis, LengthPenalty, Ranking, Sampling, beam_search, sample
from unrolled.search.constraints import WordList
from unrolled.tasks.side import Side
from unrolled.training import Forcing, Loss, consistency, own_share, with_own_guesses

Ids = NDArray[np.int32]
UNKNOWNS = ("auto", "keep", "forbid", "replace")
PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class RunOptions:
    """How to write: the options of `unrolled run` and of `predict`."""

    beam: int = 5  # 1: greedy
    n_best: int = 1
    length_penalty: LengthPenalty = "gnmt"
    alpha: float = 1.0
    coverage: float = 0.0
    search_stop: Literal["safe", "enough"] = "safe"
    no_repeat_ngram: int = 0
    min_tokens: int = 0
    max_tokens: int | None = None  # None: by what was read
    prefix: str | None = None  # what every output begins with
    unknown: str = "auto"  # keep, forbid or replace <unk>; auto: words are replaced where a text is read with attention
    words: str | tuple[str, ...] | None = None  # write these words only: a file with one in each line, or the words
    temperature: float | None = None  # draw at random instead of searching
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    attention: bool = False  # keep where each token looked
    precision: str = "fp32"  # bf16: products in bfloat16, twice as fast on processors that have them

    def __post_init__(self) -> None:
        for name, choices in (("unknown", UNKNOWNS), ("precision", PRECISIONS)):
            if getattr(self, name) not in choices:
                raise unknown_name(name, getattr(self, name), choices)

    def autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        """A block in which products are as `precision` says."""
        return nullcontext() if self.precision == "fp32" else torch.autocast(device.type, dtype=torch.bfloat16)

    @property
    def search(self) -> Beam:
        ranking = Ranking(self.length_penalty, self.alpha, self.coverage)
        return Beam(self.beam, self.n_best, ranking, self.search_stop, self.min_tokens, self.no_repeat_ngram)


OPTIONS = [field.name for field in fields(RunOptions)]
MOST_SHOWN = 5  # outputs of a search that is watched


def written(
    network: Any,
    memory: Encoded,
    target: Side,
    options: RunOptions,
    *,
    most: Sequence[int],
    places: Sequence[int],
    forbid_unknown: bool,
    attention: bool,
) -> list[Found]:
    """What was found for each row of a memory, `most` tokens at the most; `places` are the rows' numbers among all."""
    forbidden = [target.begin]
    if target.tokenizer.vocabulary.unk is not None and forbid_unknown:
        forbidden.append(target.tokenizer.vocabulary.unk)
    if options.temperature is not None:
        return _samples(network, memory, places, most, forbidden, options, target)
    prefix = target.ids(options.prefix).tolist() if options.prefix else []
    return beam_search(
        network.showing_attention() if attention or options.coverage else network,
        len(places),
        start=target.begin,
        end=target.end,
        max_tokens=most,
        beam=options.search,
        memory=memory,
        memory_mask=memory.mask,
        prefixes=[prefix] * len(places),
        forbidden=forbidden,
        constraint=None if options.words is None else WordList.of(target.tokenizer, options.words, [target.end]),
        attention=attention,
    )


@torch.no_grad()
def watched(network: Any, memory: Encoded, target: Side, *, beam: int, prefix: str, most: int) -> Found:
    """What a search finds for a memory of one row, unknown words forbidden, with the tree of all it looked at."""
    unknown = target.tokenizer.vocabulary.unk
    (found,) = beam_search(
        network,
        1,
        start=target.begin,
        end=target.end,
        max_tokens=most,
        beam=Beam(beam, n_best=min(beam, MOST_SHOWN)),
        memory=memory,
        memory_mask=memory.mask,
        prefixes=[target.ids(prefix).tolist() if prefix else []],
        forbidden=[target.begin, *([] if unknown is None else [unknown])],
        tree=True,
    )
    return found


def _samples(
    network: Any,
    memory: Encoded,
    places: Sequence[int],
    most: Sequence[int],
    forbidden: list[int],
    options: RunOptions,
    target: Side,
) -> list[Found]:
    """Outputs drawn from the model's distribution; ranked by nothing, their score is log P."""
    assert options.temperature is not None
    drawn = sample(
        network,
        [[target.begin]] * len(places),
        max_tokens=max(most),
        memory=memory,
        sampling=Sampling(options.temperature, options.top_k, options.top_p, options.min_p),
        end_tokens=[target.end],
        stop=lambda row, tokens: len(tokens) >= most[row],
        seeds=None if options.seed is None else [options.seed + place for place in places],
        forbidden=forbidden,
    )
    return [Found([Hypothesis(d.tokens, d.log_prob, d.log_prob, d.stopped_by == "end")]) for d in drawn]


def with_targets(batch: Batch, target: Side, targets: Sequence[Ids], smoothing: float = 0.0) -> Batch:
    """The batch with a target for each row, its end at its end, and what is read before each of its tokens."""
    more = {
        **batch.more,
        "target_inputs": padded([np.insert(one, 0, target.begin) for one in targets]),
        "target_lengths": torch.tensor([len(one) + 1 for one in targets]),
    }
    if smoothing:
        more["smoothing"] = torch.tensor(smoothing)
    return replace(batch, targets=padded([np.append(one, target.end) for one in targets]), more=more)


def real_tokens(batch: Batch) -> Tensor:
    """(B, T), True where a target's token is real."""
    steps = torch.arange(batch.targets.shape[1], device=batch.targets.device)
    return steps < batch.more["target_lengths"][:, None]


def token_loss(network: Any, features: Tensor, batch: Batch) -> Loss:
    """Cross-entropy of the real tokens, smoothed as the batch says; features (B, T, F) are what `scores` reads."""
    real, scores = real_tokens(batch), network.scores
    smoothing = float(batch.more["smoothing"]) if "smoothing" in batch.more else 0.0
    targets = batch.targets[real]
    read = features[real]
    loss = Loss(linear_cross_entropy(read, scores.weight, scores.bias, targets, smoothing), torch.tensor(len(targets)))
    return consistency.agreeing(loss, batch, scores(read).log_softmax(-1)) if consistency.asked(batch) else loss


def with_guesses(network: Any, forcing: Forcing, batch: Batch, done: float) -> Batch:
    """Puts the model's own guesses in place of some true tokens, as `train.teacher_forcing` says."""
    share = own_share(forcing, done)
    if share == 0:
        return batch
    with torch.no_grad():
        scores = network.scores(network(batch).features)
    inputs = with_own_guesses(batch.more["target_inputs"], scores, share)
    return replace(batch, more={**batch.more, "target_inputs": inputs})


@dataclass
class FreeRun:
    """Greedy outputs, and how many tokens of the targets, ends counted, are right when the true ones before them are
    read, and when the model's own are."""

    target: Side
    outputs: list[list[int]]
    forced: int = 0
    free: int = 0
    tokens: int = 0

    @torch.no_grad()
    def add(self, network: Any, batch: Batch, targets: Sequence[Ids], most: int) -> None:
        """Writes for each row of a batch, `most` tokens at the most."""
        best = network.scores(network(batch).features).argmax(-1).cpu()
        found = sample(
            network,
            [[self.target.begin]] * len(targets),
            max_tokens=most,
            memory=network.encode(batch),
            sampling=Sampling(temperature=0),
            end_tokens=[self.target.end],
            forbidden=[self.target.begin],
        )
        for row, (target, output) in enumerate(zip(targets, found, strict=True)):
            truth = [*target.tolist(), self.target.end]
            self.tokens += len(truth)
            self.forced += sum(a == b for a, b in zip(best[row].tolist(), truth, strict=False))
            self.free += sum(a == b for a, b in zip([*output.tokens, self.target.end], truth, strict=False))
            self.outputs.append(output.tokens)

    def rates(self) -> dict[str, float]:
        """The shares that are right, and their difference: how much worse a model is for reading its own words."""
        return {
            "forced_accuracy": self.forced / self.tokens,
            "free_accuracy": self.free / self.tokens,
            "exposure_gap": (self.forced - self.free) / self.tokens,
        }
