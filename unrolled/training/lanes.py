"""The part of a checkpoint that each process has of its own: the state of its rows, and its random numbers.

The rows of all processes stand side by side there, as one process has them, so that any number of processes can go on.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unrolled.data import Batch
from unrolled.errors import UserError
from unrolled.training import checkpoint
from unrolled.training.gradients import out_of_step
from unrolled.training.loop import Trainer
from unrolled.training.loss import map_state
from unrolled.training.ranks import Ranks


def gathered_state(trainer: Trainer) -> dict[str, Any]:
    """The carried state of all rows and the random numbers of all processes, for a checkpoint."""
    ranks, tbptt = trainer.ranks, trainer.tbptt
    own = {
        "random": checkpoint.random_state(),
        "hidden": tbptt.state,
        "past": [_stored(batch, entry) for batch, entry in tbptt.past],
    }
    if ranks.alone:
        return own
    progress = trainer.progress
    place = [progress.step, progress.epoch, progress.batch]
    every = ranks.gather({**own, "place": place, "weights": _checksum(trainer.network)})
    for rank, one in enumerate(every):
        if (one["place"], one["weights"]) != (every[0]["place"], every[0]["weights"]):
            where = "its weights differ from the first one's" if one["place"] == every[0]["place"] else one["place"]
            raise out_of_step(ranks, f"process {rank}: {where}")
    return {
        "random": every[0]["random"],
        "hidden": _joined([one["hidden"] for one in every]),
        "past": [_joined(list(same)) for same in zip(*(one["past"] for one in every), strict=True)],
        "ranks": {"random": [one["random"] for one in every], "noise": trainer.noise_state()},
    }


def restore_share(trainer: Trainer, state: dict[str, Any]) -> list[str]:
    """Give this process its rows and random numbers; returns notes."""
    ranks, device, tbptt = trainer.ranks, trainer.device, trainer.tbptt
    tbptt.state = _on(device, _own(state["hidden"], ranks))
    tbptt.past.clear()
    tbptt.past.extend(_restored(device, _own(stored, ranks)) for stored in state["past"])
    stored = state.get("ranks", {"random": [state["random"]], "noise": None})
    before = len(stored["random"])
    if ranks.rank < before:
        checkpoint.restore_random_state(stored["random"][ranks.rank])
    else:
        own_random_numbers(trainer.settings.seed + trainer.progress.step, ranks)
    trainer.restore_noise(stored["noise"])
    if before == ranks.world:
        return []
    return [
        f"The run had {_processes(before)}, now there {'is' if ranks.alone else 'are'} {ranks.world}: the batches are "
        "the same; dropout and other random numbers are new ones."
    ]


def own_random_numbers(seed: int, ranks: Ranks) -> None:
    """Let each process but the first draw random numbers of its own."""
    if not ranks.is_first:
        torch.manual_seed((seed << 16) + ranks.rank)


def _checksum(network: nn.Module) -> int:
    """Of all weights, as bits."""
    found = 0
    for parameter in network.parameters():
        found = zlib.crc32(parameter.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes(), found)
    return found


def _processes(number: int) -> str:
    return "one process" if number == 1 else f"{number} processes"


def _joined(parts: Sequence[Any]) -> Any:
    """States of the rows of several processes as one: tensors one below the other, the rest as the first has it."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat([part.cpu() for part in parts]) if first.dim() else first
    if isinstance(first, (tuple, list)):
        return type(first)(_joined(same) for same in zip(*parts, strict=True))
    if isinstance(first, dict):
        return {key: _joined([part[key] for part in parts]) for key in first}
    return first


def _own(state: Any, ranks: Ranks) -> Any:
    """The rows of this process in the state of all."""

    def cut(tensor: Tensor) -> Tensor:
        if tensor.dim() and len(tensor) < ranks.world:
            raise UserError(
                f"The run carries the state of {len(tensor)} rows, too few for {ranks.world} processes.",
                f"Resume it in {len(tensor)} or fewer.",
            )
        return tensor[ranks.share.lanes(len(tensor))] if tensor.dim() else tensor

    return state if ranks.alone else map_state(cut, state)


def _stored(batch: Batch, entry: Any) -> dict[str, Any]:
    return {"batch": {k: v for k, v in vars(batch).items() if v is not None}, "entry": entry}


def _restored(device: torch.device, stored: dict[str, Any]) -> tuple[Batch, Any]:
    return Batch(**stored["batch"]).to(device), _on(device, stored["entry"])


def _on(device: torch.device, state: Any) -> Any:
    return map_state(lambda tensor: tensor.to(device), state)
