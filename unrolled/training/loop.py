"""The training loop: a generator of steps. It computes; it prints nothing and writes no file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from unrolled.data import Batch
from unrolled.errors import UserError
from unrolled.training.average import Average, LastMean, StalledMean
from unrolled.training.clipping import Clipping
from unrolled.training.loss import Loss
from unrolled.training.schedule import learning_rate
from unrolled.training.settings import TrainSettings
from unrolled.training.tbptt import LossOf, TruncatedBPTT

USUAL_PATIENCE = 0.4  # of a run's evaluations
LEAST_PATIENCE = 4
LOSSES = ("nll", "nats_per_token", "nats_per_label", "loss")  # names of the validation loss among scores


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


@dataclass(frozen=True)
class Evaluation:
    """Scores by name, and a few samples of what the model does, to show in training."""

    scores: dict[str, float]
    samples: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Goal:
    """The score that decides which model is best."""

    metric: str
    higher_is_better: bool = False

    def better(self, score: float, best: float | None) -> bool:
        if best is None or not math.isfinite(best):
            return math.isfinite(score)
        return score > best if self.higher_is_better else score < best

    def loss_in(self, scores: dict[str, float]) -> tuple[str, float] | None:
        """Name and value of the validation loss that breaks ties; None if the score is a loss itself."""
        if self.metric in LOSSES:
            return None
        return next(((name, scores[name]) for name in LOSSES if name in scores), None)


class Trainer:
    """The state of training, and its steps.

    `loss(batch, state)` runs the network; `evaluate()` gives scores; with `stateful` the state of one batch is carried
    to the next, and gradients go back `window` steps (see `TruncatedBPTT`). With `judge_start` the network is evaluated
    before the first update too. With `usual_tokens` the learning rate of an update is proportional to its tokens; the
    setting holds for this number.
    """

    def __init__(
        self,
        network: nn.Module,
        loss: LossOf,
        batches: Batches,
        settings: TrainSettings,
        *,
        goal: Goal,
        evaluate: Callable[[], Evaluation],
        device: torch.device,
        stateful: bool = False,
        window: int | None = None,
        judge_start: bool = False,
        usual_tokens: int | None = None,
    ) -> None:
        self.network, self.batches, self.settings, self.device = network, batches, settings, device
        self.goal, self.evaluate, self.stateful, self.judge_start = goal, evaluate, stateful, judge_start
        self.usual_tokens = usual_tokens
        self.optimizer = make_optimizer(network, settings)
        self.average = make_average(network, settings)
        self.clipping = Clipping(network)
        self.progress = Progress()
        self.tbptt = TruncatedBPTT(self._under_autocast(loss), k2=window)
        self.scaler = torch.amp.GradScaler(device.type, enabled=settings.precision == "fp16")
        self.updates_per_epoch = -(-len(batches) // settings.accumulate)
        self.total_steps = self.total_of(settings)
        self.eval_every = settings.eval_every or max(1, math.ceil(self.total_steps / 10))
        self.patience = self._patience(settings)

    def total_of(self, settings: TrainSettings) -> int:
        """Updates of the whole run: the smaller of epochs and max_steps; a default without both."""
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
        return min(1.0, self.progress.step / self.total_steps)

    def steps(self) -> Iterator[StepInfo]:
        """All updates from `progress` to the end. The state can be saved between two of them."""
        progress = self.progress
        if self.judge_start and progress.step == 0 and progress.best_score is None:
            yield self._judge(self._start())
        while not progress.finished:
            info = self.update()
            if progress.step >= self.total_steps or progress.step % self.eval_every == 0:
                info = self._judge(info)
            progress.finished = self.is_over
            yield info

    def update(self) -> StepInfo:
        """One update of the weights."""
        progress, settings = self.progress, self.settings
        self.network.train()
        lr = self.rate(progress.step)
        self.optimizer.zero_grad(set_to_none=True)
        loss, count = self.gradients()
        if self.usual_tokens is not None:
            lr *= count / self.usual_tokens
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.scaler.unscale_(self.optimizer)
        norm, clipped, norms = self.clipping(settings.clip_norm, settings.clip_value)
        if not math.isfinite(loss) or (not math.isfinite(norm) and not self.scaler.is_enabled()):
            raise UserError(*self._non_finite(loss))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        progress.step += 1
        if self.average is not None:
            self.average.update(progress.step)
        progress.tokens += count
        mean = loss / max(1, count)
        return StepInfo(progress.step, progress.epoch, mean, count, lr, norm, clipped, norms=norms)

    def _start(self) -> StepInfo:
        """The untrained network's loss on the first batch and its scores."""
        self.network.eval()
        self.batches.order(0)
        with torch.no_grad():
            loss = self.tbptt.loss(self.batches[0].to(self.device), None)
        count = int(loss.count)
        return StepInfo(0, 0, float(loss.sum) / max(1, count), count, 0.0, 0.0, False)

    def gradients(self) -> tuple[float, int]:
        """Accumulate the gradients of the next batches; returns their summed loss and count."""
        progress, parts = self.progress, []
        if progress.batch >= len(self.batches):
            progress.epoch, progress.batch = progress.epoch + 1, 0
        self.batches.order(progress.epoch)
        number = min(self.settings.accumulate, len(self.batches) - progress.batch)
        for _ in range(number):
            if progress.batch == 0 or not self.stateful:
                self.tbptt.reset()
            batch = self.batches[progress.batch].to(self.device)
            scale = float(self.scaler.scale(torch.ones((), device=self.device))) / number
            with noisy_weights(self.network, self.settings.weight_noise):
                parts.append(self.tbptt(batch, scale=scale))
            progress.batch += 1
        return float(torch.stack([p.loss for p in parts]).sum()), sum(int(p.count) for p in parts)

    def _judge(self, info: StepInfo) -> StepInfo:
        progress = self.progress
        self.network.eval()
        if self.average is not None:
            self.average.mark()
        with torch.no_grad(), self._autocast(), self.averaged():
            found = self.evaluate()
        scores, score = found.scores, found.scores[self.goal.metric]
        if not math.isfinite(score):
            raise UserError(*self._non_finite(score, judged=True))
        if self.average is not None:
            self.average.judged(score, self.goal.better)
        is_best = self._compare(score, self.goal.loss_in(scores))
        if self.settings.schedule == "plateau" and progress.stalled > self.settings.plateau_patience:
            progress.plateau *= self.settings.plateau_factor
        return replace(info, scores=scores, samples=found.samples, is_best=is_best)

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

    def _non_finite(self, loss: float, judged: bool = False) -> tuple[str, str]:
        """The problem and what to try; `judged`: it showed in an evaluation, not in an update."""
        settings = self.settings
        kept = "The best model so far is kept"
        if self.progress.best_score is None:
            kept = f"No model is kept: {'this was the first evaluation' if judged else 'there was no evaluation yet'}"
        if settings.clip_norm is None:
            clipping = f"train.clip_norm={TrainSettings().clip_norm:g}, which is off now"
        else:
            clipping = f"train.clip_norm={settings.clip_norm / 4:g}"
        return (
            f"Training became non-finite at step {max(1, self.progress.step)}: loss {loss:g}, "
            f"first in {self._first_non_finite()}.",
            f"{kept}. Try train.lr={settings.lr / 3:g}, or {clipping}.",
        )

    def _first_non_finite(self) -> str:
        """The first weight, gradient or, in another forward pass, layer with non-finite numbers."""
        for name, parameter in self.network.named_parameters():
            for kind, tensor in (("value", parameter), ("gradient", parameter.grad)):
                if tensor is not None and not bool(torch.isfinite(tensor).all()):
                    return f"the {kind} of {name}"
        found: list[str] = []

        def look(name: str) -> Callable[[nn.Module, Any, Any], None]:
            def hook(module: nn.Module, inputs: Any, output: Any) -> None:
                first = output[0] if isinstance(output, tuple) else output
                if isinstance(first, torch.Tensor) and not bool(torch.isfinite(first).all()):
                    found.append(f"the output of {name}")

            return hook

        hooks = [module.register_forward_hook(look(name)) for name, module in self.network.named_modules() if name]
        with torch.no_grad():
            self.tbptt.loss(self.batches[max(0, self.progress.batch - 1)].to(self.device), None)
        for handle in hooks:
            handle.remove()
        return found[0] if found else "the loss itself"

    def _autocast(self) -> AbstractContextManager[Any]:
        dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16}
        if self.settings.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=dtypes[self.settings.precision])

    def _under_autocast(self, loss: LossOf) -> LossOf:
        def run(batch: Batch, state: Any) -> Loss:
            with self._autocast():
                return loss(batch, state)

        return run


@contextmanager
def noisy_weights(network: nn.Module, deviation: float) -> Iterator[None]:
    """A block in which weights have Gaussian noise (Graves 2011), so that gradients are those of the noisy weights.

    >>> layer = nn.Linear(2, 2)
    >>> before = layer.weight.clone()
    >>> with noisy_weights(layer, 0.1):
    ...     changed = not torch.equal(layer.weight, before)
    >>> changed, torch.equal(layer.weight, before)
    (True, True)
    """
    if deviation == 0:
        yield
        return
    parameters = [p for p in network.parameters() if p.requires_grad]
    kept = [p.detach().clone() for p in parameters]
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(torch.randn_like(parameter), alpha=deviation)
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, kept, strict=True):
                parameter.copy_(value)


def make_optimizer(network: nn.Module, settings: TrainSettings) -> torch.optim.Optimizer:
    """The optimiser of the settings; weight decay skips biases and gains."""
    decayed = [p for p in network.parameters() if p.requires_grad and p.dim() >= 2]
    plain = [p for p in network.parameters() if p.requires_grad and p.dim() < 2]
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum)
    if settings.optimizer == "rmsprop":
        return torch.optim.RMSprop(groups, lr=settings.lr, momentum=settings.momentum)
    make = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
    return make(groups, lr=settings.lr, fused=True)  # one pass over the weights: 3 to 10 times faster on a CPU


def make_average(network: nn.Module, settings: TrainSettings) -> Average | LastMean | StalledMean | None:
    """The average of the weights that is evaluated and saved, if the settings have one."""
    if settings.average_stalled:
        return StalledMean(network, settings.average_stalled)
    if settings.average_last:
        return LastMean(network, settings.average_last)
    return Average(network, settings.average) if settings.average else None
