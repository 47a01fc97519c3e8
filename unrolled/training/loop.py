"""The training loop: a generator of steps. It computes; it prints nothing and writes no file."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from unrolled.data import Batch
from unrolled.data.batching.sharing import evaluated_by, is_idle, mark_of, shared_batches
from unrolled.training.average import Average
from unrolled.training.clipping import Clipping
from unrolled.training.gradients import GradientSum
from unrolled.training.graphs import Chunk, GraphChoice
from unrolled.training.interrupts import Stop
from unrolled.training.loss import Loss
from unrolled.training.non_finite import non_finite
from unrolled.training.optimizers import common_generator, make_average, make_optimizer
from unrolled.training.precision import autocast, pick_precision
from unrolled.training.ranks import ALONE, Ranks
from unrolled.training.schedule import learning_rate
from unrolled.training.settings import TrainSettings
from unrolled.training.tbptt import LossOf, TruncatedBPTT
from unrolled.training.traits import Traits
from unrolled.training.update import DeviceUpdate, Parts, RunningUpdate, accumulate, make_update

USUAL_PATIENCE = 0.4  # of a run's evaluations
LEAST_PATIENCE = 4
LAG = 8  # updates on a GPU that may be under way before the numbers of the first are read


class Batches(Protocol):
    """Batches that depend on their index alone, so that a position in the data is a number.

    Every epoch has the same number; `order` sets the epoch, for shuffling.
    """

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Batch: ...
    def order(self, epoch: int) -> None: ...


@dataclass
class Progress:
    """The progress of a run: every number that changes during training."""

    step: int = 0  # updates made
    epoch: int = 0
    batch: int = 0  # batches consumed in this epoch
    tokens: int = 0  # targets seen in all
    best_score: float | None = None
    best_loss: float | None = None  # the validation loss of the best, if known
    best_step: int = 0
    better_step: int | None = None  # of the last evaluation with progress; None: unknown, or none yet
    stalled: int = 0  # evaluations since then
    plateau: float = 1.0  # factor of the learning rate from the plateau schedule
    finished: bool = False


@dataclass(frozen=True)
class StepInfo:
    """One update: the mean loss of its batches, learning rate, gradient norm and scores."""

    step: int
    epoch: int
    loss: float
    tokens: int  # counted in this update
    lr: float
    grad_norm: float  # before clipping
    clipped: bool
    scores: dict[str, float] | None = None  # of the evaluation after this update, if there was one
    samples: list[str] = field(default_factory=list)  # of the same evaluation
    is_best: bool = False
    norms: Tensor | None = None  # of each weight's gradient, as `Clipping` found them
    stop: bool = False  # some process was asked to stop


@dataclass(frozen=True)
class Evaluation:
    """Scores by name, and a few samples of what the model does, to show in training."""

    scores: dict[str, float]
    samples: list[str] = field(default_factory=list)


class _Launched(NamedTuple):
    """An update that was begun, and its place in the run."""

    step: int
    epoch: int
    chunks: list[Chunk]
    outcome: RunningUpdate


class Trainer:
    """The state of training, and its steps.

    `loss(batch, state)` runs the network; `evaluate()` gives scores; `traits` say what else the task needs. On a GPU
    updates run in CUDA graphs where they can; up to `LAG` of them are under way at a time. Several processes (`ranks`)
    share the rows of every batch.
    """

    def __init__(
        self,
        network: nn.Module,
        loss: LossOf,
        batches: Batches,
        settings: TrainSettings,
        *,
        traits: Traits,
        evaluate: Callable[[], Evaluation],
        device: torch.device,
        ranks: Ranks = ALONE,
    ) -> None:
        batches = shared_batches(batches, ranks.share, lanes=traits.stateful)
        self.network, self.batches, self.settings, self.device = network, batches, settings, device
        self.traits, self.goal, self.evaluate = traits, traits.goal, evaluate
        self.optimizer = make_optimizer(network, settings)
        self.average = make_average(network, settings)
        self.clipping = Clipping(network)
        self.progress = Progress()
        self.ranks, self.together = ranks, None if ranks.alone else GradientSum(network, ranks)
        totals = None if self.together is None else self.together.totals
        self.tbptt = TruncatedBPTT(self._under_autocast(loss), k2=traits.window, totals=totals)
        self.precision = pick_precision(settings.precision, device)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.precision == "fp16")
        parts = Parts(
            *(network, self.tbptt, self.optimizer, self.scaler, self.clipping, settings, device, traits.usual_tokens),
            average=self.average if isinstance(self.average, Average) else None,
            together=self.together,
            noise=None if ranks.alone else common_generator(device),
        )
        self.ending = False  # set between two steps, to end with an evaluation after the next update; see `steps`
        self.source = batches
        self.updater = make_update(parts, GraphChoice(settings.graph, self._eager(None)))
        self.pending: deque[_Launched] = deque()  # updates whose numbers were not read yet
        self.lag = LAG if isinstance(self.updater, DeviceUpdate) else 0
        self.parts = parts
        self.updates_per_epoch = -(-len(batches) // settings.accumulate)
        self.total_steps = self.total_of(settings)
        self.eval_every = settings.eval_every or max(1, math.ceil(self.total_steps / 10))
        self.patience = self._patience(settings)

    def feed_gpu(self, ahead: Batches, eager: str | None = None) -> None:
        """Read the same batches from `ahead`; `eager` is the reason why an update cannot be recorded, if there is one.

        To be called before the first update.
        """
        self.source = ahead
        self.updater = make_update(self.parts, GraphChoice(self.settings.graph, self._eager(eager)))

    def total_of(self, settings: TrainSettings) -> int:
        """Updates of the whole run: the smaller of epochs and max_steps; a default without both."""
        if self.traits.fitted:
            return 0
        usual = max(settings.usual_epochs, math.ceil(settings.usual_updates / self.updates_per_epoch))
        if settings.epochs is None and settings.max_steps is not None:
            return settings.max_steps
        total = (settings.epochs or usual) * self.updates_per_epoch
        return min(total, settings.max_steps or total)

    def _patience(self, settings: TrainSettings) -> int | None:
        """Evaluations without improvement that end the run; None: no early stopping."""
        if settings.patience is not None:
            return settings.patience or None
        if settings.average_stalled:  # its average begins when evaluations stall
            return None
        return max(LEAST_PATIENCE, math.ceil(USUAL_PATIENCE * self.total_steps / self.eval_every))

    @property
    def is_over(self) -> bool:
        """True after the last update, or after early stopping."""
        return self.progress.step >= self.total_steps or self.stalled

    @property
    def stalled(self) -> bool:
        """True if patience is exhausted."""
        return self.patience is not None and self.progress.stalled >= self.patience

    def rate(self, step: int, total: int | None = None) -> float:
        """The learning rate of update `step`, from 0, in a run of `total` updates."""
        settings = self.settings
        return learning_rate(
            step,
            base=settings.lr,
            schedule=settings.schedule,
            warmup_steps=settings.warmup_steps,
            total_steps=total or self.total_steps,
            plateau=self.progress.plateau,
            hold=settings.hold,
            decay_to=settings.decay_to,
        )

    @property
    def done(self) -> float:
        """The finished share of the run, from 0 to 1."""
        return min(1.0, self.progress.step / max(1, self.total_steps))

    def steps(self) -> Iterator[StepInfo]:
        """All updates from `progress` to the end. The state can be saved between two of them.

        With `ending` they end with an evaluation: of the next update, or the next that all processes make.
        """
        progress = self.progress
        if self.traits.judge_start and progress.step == 0 and progress.best_score is None:
            info = self._judge(self._start())
            progress.finished = self.traits.fitted
            yield info
        while not progress.finished:
            self.launch()
            judged = progress.step >= self.total_steps or progress.step % self.eval_every == 0
            judged = judged or (self.ending and self.ranks.alone)
            while len(self.pending) > (0 if judged else self.lag):
                info = self._read()
                if judged and not self.pending:
                    info = self._judge(info)
                    progress.finished = self.is_over
                yield info
            if judged and self.ranks.from_first(lambda: self.ending):
                return

    def update(self) -> StepInfo:
        """One update of the weights; waits for its end."""
        self.launch()
        while len(self.pending) > 1:
            self._read()
        return self._read()

    def launch(self) -> None:
        """Begin one update of the weights."""
        progress = self.progress
        if not self.network.training:  # setting it visits every module
            self.network.train()
        lr = self.rate(progress.step)
        chunks = self._chunks()
        outcome = self.updater.run(chunks, lr, progress.step + 1)
        progress.step += 1
        if self.average is not None and not self.updater.averages:
            self.average.update(progress.step)
        self.pending.append(_Launched(progress.step, progress.epoch, chunks, outcome))

    def flush(self) -> list[StepInfo]:
        """Wait for all updates under way; the state can be saved then."""
        return [self._read() for _ in range(len(self.pending))]

    def _read(self) -> StepInfo:
        """The numbers of the oldest update under way."""
        step, epoch, chunks, outcome = self.pending.popleft()
        found = outcome.read()
        if found.failed:
            self.progress.step = step - 1
            raise non_finite(self, found.loss, chunks)
        self.progress.tokens += found.count
        mean = found.loss / max(1, found.count)
        numbers = (step, epoch, mean, found.count, found.lr, found.norm, found.clipped)
        return StepInfo(*numbers, norms=found.norms, stop=found.stop)

    def release(self) -> None:
        """Free the memory of updates, so that something else can be tried; no update can follow."""
        self.pending.clear()
        self.optimizer.zero_grad(set_to_none=True)
        if isinstance(self.updater, DeviceUpdate):
            self.updater.graphs.clear()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _start(self) -> StepInfo:
        """The untrained network's loss on the first batch and its scores."""
        self.network.eval()
        self.batches.order(0)
        with torch.no_grad():
            loss = self.tbptt.loss(self.batches[0].to(self.device), None)
        total, counted = (
            (loss.sum, loss.count) if self.tbptt.totals is None else self.tbptt.totals(loss.sum, loss.count)
        )
        count = int(counted)
        return StepInfo(0, 0, float(total) / max(1, count), count, 0.0, 0.0, False)

    def gradients(self) -> tuple[float, int]:
        """Accumulate the gradients of the next batches; returns their summed loss and count."""
        loss, count = accumulate(self.parts, self._chunks())
        return float(loss), int(count)

    def _chunks(self) -> list[Chunk]:
        """The batches of the next update."""
        progress, chunks = self.progress, []
        if progress.batch >= len(self.batches):
            progress.epoch, progress.batch = progress.epoch + 1, 0
        self.source.order(progress.epoch)
        for _ in range(min(self.settings.accumulate, len(self.batches) - progress.batch)):
            fresh, idle = progress.batch == 0 or not self.traits.stateful, is_idle(self.batches, progress.batch)
            mark = mark_of(self.batches, progress.batch) if self.together is not None else 0
            chunks.append(Chunk(self.source[progress.batch], fresh, idle, mark))
            progress.batch += 1
        return chunks

    def _eager(self, reason: str | None) -> str | None:
        """The reason why updates cannot be recorded in a CUDA graph, if one is known."""
        if self.together is not None:
            return "several processes add up their gradients in each"
        window, steps = self.tbptt.k2, getattr(self.settings, "k1", None)
        if reason is None and window is not None and steps is not None and window > steps:
            return f"train.k2={window} reaches back beyond train.k1={steps}"
        return reason

    def watch(self, stop: Stop) -> None:
        """Let all processes stop after the same update if one is asked to."""
        if self.together is not None:
            self.together.stop_asked = lambda: stop.signal is not None or self.ranks.place.is_orphan

    def noise_state(self) -> Tensor | None:
        """The state of the random numbers that all processes share."""
        return None if self.parts.noise is None else self.parts.noise.get_state()

    def restore_noise(self, state: Tensor | None) -> None:
        """Go on from a state, or from where torch's own random numbers are."""
        if self.parts.noise is not None:
            self.parts.noise.set_state(common_generator(self.device).get_state() if state is None else state)

    @property
    def eager_reason(self) -> str | None:
        """The reason why updates on a GPU run without a CUDA graph; None: they run in one, or there is no GPU."""
        if isinstance(self.updater, DeviceUpdate):
            return self.updater.graphs.reason
        return None if self.device.type == "cpu" else "train.optimizer=rmsprop reads values back in fp16"

    def _judge(self, info: StepInfo) -> StepInfo:
        progress = self.progress
        self.network.eval()
        if self.average is not None:
            self.average.mark()
        with torch.no_grad(), self._autocast(), self.averaged():
            found = self._evaluation()
        scores, score = found.scores, found.scores[self.goal.metric]
        if not math.isfinite(score):
            raise non_finite(self, score)
        if self.average is not None:
            self.average.judged(score, self.goal.better)
        is_best = self._compare(score, self.goal.loss_in(scores))
        if self.settings.schedule == "plateau" and progress.stalled > self.settings.plateau_patience:
            progress.plateau *= self.settings.plateau_factor
        return replace(info, scores=scores, samples=found.samples, is_best=is_best)

    def _evaluation(self) -> Evaluation:
        """The evaluation; where several processes share it, the first one's sums count."""
        if self.ranks.alone:
            return self.evaluate()
        with evaluated_by(self.ranks):
            found = self.evaluate()
        scores, samples = self.ranks.from_first(lambda: (dict(found.scores), list(found.samples)))
        return Evaluation(scores, samples)

    def _compare(self, score: float, found: tuple[str, float] | None) -> bool:
        """True if an evaluation is the best so far; updates `progress`.

        The lower validation loss breaks ties, and counts as progress too. Without a loss, or with equal losses, the
        network that was trained longer is kept, but that is not progress.
        """
        progress = self.progress
        loss = found[1] if found is not None and math.isfinite(found[1]) else None
        is_better, is_best = self.goal.better(score, progress.best_score), False
        if score == progress.best_score:
            is_better = loss is not None and progress.best_loss is not None and loss < progress.best_loss
            is_best = progress.best_loss is None or loss == progress.best_loss
        if is_better or is_best:
            progress.best_score, progress.best_loss, progress.best_step = score, loss, progress.step
        if is_better:
            progress.better_step = progress.step
        progress.stalled = 0 if is_better else progress.stalled + 1
        return is_better or is_best

    def averaged(self) -> AbstractContextManager[None]:
        """A block in which the network has the weights that are evaluated and saved."""
        return nullcontext() if self.average is None else self.average.in_place()

    def _autocast(self) -> AbstractContextManager[Any]:
        return autocast(self.precision, self.device)

    def _under_autocast(self, loss: LossOf) -> LossOf:
        def run(batch: Batch, state: Any) -> Loss:
            with self._autocast():
                return loss(batch, state)

        return run
