"""Weights that other programs wrote: state_dict files of torch, and a report of what fitted."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from unrolled.errors import UserError
from unrolled.text.files import reading

PICKLED = (".pt", ".pth", ".bin")
WRAPPERS = ("state_dict", "model_state_dict", "model")
SHOWN = 12  # names in a list
Shape = tuple[int, ...]


@dataclass(frozen=True)
class TakenWeights:
    """A report of `take_weights`: weights of the network and of the file by name."""

    taken: dict[str, str]  # weight of the network → weight of the file
    other_shapes: dict[str, tuple[str, Shape, Shape]]  # → its counterpart, its shape, that of the counterpart
    unused: list[str]  # weights of the file without a counterpart
    left: list[str]  # weights of the network that stay as they were
    suggested: dict[str, str] = field(default_factory=dict)  # names that would make more fit

    def __str__(self) -> str:
        lines = [f"{len(self.taken)} of {len(self.taken) + len(self.left)} weights were taken: {_some(self.taken)}."]
        lines += self.misfits
        if self.unused:
            lines.append(f"In the file, without a counterpart: {_some(self.unused)}.")
        if self.left:
            lines.append(f"Left as they were: {_some(self.left)}.")
        if self.suggested:
            lines.append(f"These names would fit too: {self.suggestion}.")
        return "\n".join(lines)

    @property
    def misfits(self) -> list[str]:
        return [
            f"{ours} has shape {mine}, {theirs} in the file {other}: not taken."
            for ours, (theirs, mine, other) in list(self.other_shapes.items())[:SHOWN]
        ]

    @property
    def suggestion(self) -> str:
        return ", ".join(f"{theirs}={ours}" for theirs, ours in self.suggested.items())


def read_state(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, or of a torch file (.pt, .pth, .bin) that holds weights alone.

    A torch file is read with `weights_only=True`: one that holds code is refused. A state_dict may lie in an entry
    `state_dict`, `model_state_dict` or `model`; the prefix `module.` of DataParallel is removed.
    """
    path = Path(path)
    with reading(path, "file of weights"):
        if path.suffix in PICKLED:
            found = _torch_file(path)
        elif path.suffix == ".safetensors":
            try:
                found = load_file(path)
            except SafetensorError as error:
                raise UserError(
                    f"{path} is not a whole file of weights: {str(error)[:200]}.", "Save it again."
                ) from None
        else:
            raise UserError(f"{path} is not a file of weights.", f"Expected .safetensors or {', '.join(PICKLED)}.")
    if found and all(name.startswith("module.") for name in found):
        found = {name.removeprefix("module."): weight for name, weight in found.items()}
    return found


def _torch_file(path: Path) -> dict[str, Tensor]:
    with path.open("rb"):  # errors of the file system are not damage
        pass
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UserError(
            f"{path} holds more than weights, and loading it could run any code. It is not loaded.",
            "Save the weights alone: torch.save(network.state_dict(), path).",
        ) from None
    except Exception as error:  # a damaged pickle raises anything
        raise UserError(f"{path} is not a whole file of torch: {str(error)[:200]}.", "Save it again.") from None
    if isinstance(found, Mapping):
        for name in WRAPPERS:
            if isinstance(found.get(name), Mapping):
                found = found[name]
    named = found.items() if isinstance(found, Mapping) else ()
    tensors = {str(name): one for name, one in named if isinstance(one, Tensor)}
    if not tensors:
        raise UserError(f"{path} holds no weights by name.", "Save them with torch.save(network.state_dict(), path).")
    return tensors


def take_weights(
    network: nn.Module,
    source: str | Path | Mapping[str, Tensor],
    names: Mapping[str, str] | None = None,
) -> TakenWeights:
    """Copy the weights of a file, or of a state_dict, into a network, and report what fitted.

    `names` says what a module of the file is called in the network: {"rnn": "layer"} takes rnn.weight_ih_l0 as
    layer.weight_ih_l0. Other weights are taken under their own names. Weights of torch.nn's LSTM, GRU and RNN have the
    same form in our layers. A weight of another shape is not taken; if none fits, that is an error.
    """
    state = source if isinstance(source, Mapping) else read_state(source)
    where = "The state_dict" if isinstance(source, Mapping) else str(source)
    ours = network.state_dict()
    renamed = _renamed(state, names or {}, where)
    taken = {
        name: theirs for name, theirs in renamed.items() if name in ours and ours[name].shape == state[theirs].shape
    }
    shapes = {
        name: (theirs, tuple(ours[name].shape), tuple(state[theirs].shape))
        for name, theirs in renamed.items()
        if name in ours and name not in taken
    }
    unused = [theirs for name, theirs in renamed.items() if name not in ours]
    left = [name for name in ours if name not in taken]
    report = TakenWeights(taken, shapes, unused, left, _suggested(state, ours, unused, left))
    if not taken:
        raise UserError(
            " ".join([f"{where} has no weight that fits the network.", *report.misfits])
            + f" It holds {_some(list(state))}; the network has {_some(list(ours))}.",
            f"Say which is which; these names would fit: {report.suggestion}."
            if report.suggested
            else "Say which is which, or make the sizes of the network those of the file.",
        )
    with torch.no_grad():
        for name, theirs in taken.items():
            ours[name].copy_(state[theirs])
    return report


def _renamed(state: Mapping[str, Tensor], names: Mapping[str, str], where: str) -> dict[str, str]:
    """Weights of a file by their names in the network; the longest module in `names` counts."""
    found: dict[str, str] = {}
    used: set[str] = set()
    for theirs in state:
        fitting = [name for name in names if theirs == name or theirs.startswith(f"{name}.") or not name]
        ours = theirs
        if fitting:
            longest = max(fitting, key=len)
            used.update(fitting)
            rest = theirs.removeprefix(longest).removeprefix(".")
            ours = ".".join(part for part in (names[longest], rest) if part)
        if ours in found:
            raise UserError(f"{found[ours]} and {theirs} would both be {ours}.", "Give each a name of its own.")
        found[ours] = theirs
    for name in names:
        if name not in used:
            raise UserError(f"{where} has no module {name!r}.", f"It holds {_some(list(state))}.")
    return found


def _suggested(
    state: Mapping[str, Tensor], ours: Mapping[str, Tensor], unused: Sequence[str], left: Sequence[str]
) -> dict[str, str]:
    """Modules of the file that have the same weights, by name and shape, as one of the network's that got none."""
    theirs, mine = (_modules({name: of[name] for name in names}) for of, names in ((state, unused), (ours, left)))
    found: dict[str, str] = {}
    for module, weights in theirs.items():
        same = [name for name, others in mine.items() if others == weights and name not in found.values()]
        if same:
            found[module] = same[0]
    return found


def _modules(state: Mapping[str, Tensor]) -> dict[str, dict[str, Shape]]:
    found: dict[str, dict[str, Shape]] = {}
    for name, weight in state.items():
        module, _, last = name.rpartition(".")
        found.setdefault(module, {})[last] = tuple(weight.shape)
    return found


def _some(names: Mapping[str, str] | Sequence[str]) -> str:
    shown = list(names)[:SHOWN]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "") if shown else "nothing"
