"""The error of a training that became non-finite: where it began, and what to try."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from unrolled.errors import UserError
from unrolled.training.graphs import Chunk
from unrolled.training.settings import TrainSettings
from unrolled.training.update import DeviceUpdate, accumulate

if TYPE_CHECKING:
    from unrolled.training.loop import Trainer


def non_finite(trainer: Trainer, loss: float, chunks: list[Chunk] | None = None) -> UserError:
    """The error; `chunks` are those of the update, None: it showed in an evaluation."""
    settings, judged = trainer.settings, chunks is None
    kept = "The best model so far is kept"
    if trainer.progress.best_score is None:
        kept = f"No model is kept: {'this was the first evaluation' if judged else 'there was no evaluation yet'}"
    if settings.clip_norm is None:
        clipping = f"train.clip_norm={TrainSettings().clip_norm:g}, which is off now"
    else:
        clipping = f"train.clip_norm={settings.clip_norm / 4:g}"
    return UserError(
        f"Training became non-finite at step {max(1, trainer.progress.step)}: loss {loss:g}, "
        f"first in {_first(trainer, chunks)}.",
        f"{kept}. Try train.lr={settings.lr / 3:g}, or {clipping}.",
    )


def _first(trainer: Trainer, chunks: list[Chunk] | None) -> str:
    """The first weight, gradient or, in another forward pass, layer with non-finite numbers."""
    if chunks and isinstance(trainer.updater, DeviceUpdate):  # gradients of later updates, or none: compute them again
        with trainer.updater.graphs.aside():
            trainer.optimizer.zero_grad(set_to_none=True)
            accumulate(trainer.parts, chunks)
    for name, parameter in trainer.network.named_parameters():
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

    hooks = [module.register_forward_hook(look(name)) for name, module in trainer.network.named_modules() if name]
    with torch.no_grad():
        batch = chunks[-1].batch if chunks else trainer.batches[max(0, trainer.progress.batch - 1)]
        trainer.tbptt.loss(batch.to(trainer.device), None)
    for handle in hooks:
        handle.remove()
    return found[0] if found else "the loss itself"
