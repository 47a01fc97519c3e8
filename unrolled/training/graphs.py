"""CUDA graphs of whole updates: one for each set of shapes, recorded when the shapes come a second time.

The first update of a set of shapes runs as usual; torch tells which lines made the host wait, if any. If there was
none, the second is recorded, and from then on the host only copies the batch and starts the graph. A wait counts if it
comes twice: what is loaded at first use makes the host wait once.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unrolled.data import Batch
from unrolled.data.batching.packed import copy_into, duplicate, shapes_of
from unrolled.errors import UserError
from unrolled.kernels.cuda.recording import recording
from unrolled.training.devices import is_out_of_memory
from unrolled.training.loss import leaves, map_state
from unrolled.training.tbptt import TruncatedBPTT

MOST_GRAPHS = 256  # sets of shapes; updates of further ones run without a graph
WAITS = "called a synchronizing CUDA operation"


@dataclass(frozen=True)
class Chunk:
    """A batch of an update; `fresh`: no state comes from the batch before.

    Of several processes, one is `idle` if none of the rows is for it; `mark` is the same in all that are in step.
    """

    batch: Batch
    fresh: bool
    idle: bool = False
    mark: int = 0


Compute = Callable[[Sequence[Chunk]], Tensor]


@dataclass(frozen=True)
class GraphChoice:
    """`train.graph`, and the reason why updates cannot be recorded, if one is known before the first."""

    mode: Literal["auto", "on", "off"] = "auto"
    reason: str | None = None


@dataclass
class _Recorded:
    """A recorded update: its graph, the tensors that it reads, and those that it leaves."""

    graph: torch.cuda.CUDAGraph
    chunks: Sequence[Chunk]
    entry: Any  # the state that it reads and then overwrites; None: it begins without one
    left: Any  # the state after it
    report: Tensor
    uses: int = 0


class UpdateGraphs:
    """Runs updates, in CUDA graphs where it can; `reason` says why it cannot."""

    def __init__(
        self,
        compute: Compute,
        network: nn.Module,
        tbptt: TruncatedBPTT,
        stream: torch.cuda.Stream,
        choice: GraphChoice,
    ) -> None:
        self.compute, self.network, self.tbptt, self.stream = compute, network, tbptt, stream
        self.mode = choice.mode
        self.reason = "train.graph=off" if choice.mode == "off" else choice.reason
        if choice.mode == "on" and choice.reason is not None:
            raise cannot_record(choice.reason)
        self._recorded: dict[Any, _Recorded] = {}
        self._seen: set[Any] = set()  # shapes of updates that did not wait
        self._waited = False  # in an update before
        self._pool: Any = None

    @property
    def count(self) -> int:
        """Sets of shapes that were recorded."""
        return len(self._recorded)

    def clear(self) -> None:
        """Drop all recorded updates and the memory that they hold."""
        self._recorded.clear()
        self._pool = None

    def run(self, chunks: Sequence[Chunk]) -> Tensor:
        """One update; returns its report on the device, which the next update may overwrite."""
        if self.reason is not None:
            return self.compute(chunks)
        entry = None if chunks[0].fresh else self.tbptt.state
        key = (tuple((shapes_of(chunk.batch), chunk.fresh) for chunk in chunks), _state_shapes(entry))
        found = self._recorded.get(key)
        if found is None and key in self._seen and len(self._recorded) < MOST_GRAPHS:
            with self.aside():
                found = self._record(chunks, entry)
            if found is not None:
                self._recorded[key] = found
        if found is None:
            return self._rehearse(chunks, key)
        return self._replay(found, chunks, entry)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """A block on a stream of its own, without which nothing can be recorded. Graphs run on the current one."""
        here = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(here)
        with torch.cuda.stream(self.stream):
            yield
        here.wait_stream(self.stream)

    def _rehearse(self, chunks: Sequence[Chunk], key: Any) -> Tensor:
        """Run an update without a graph, and note what makes the host wait."""
        if self.reason is not None:
            return self.compute(chunks)
        if key in self._seen:
            with self.aside():
                return self.compute(chunks)
        with self.aside():
            on_device = [replace(chunk, batch=chunk.batch.to(self.stream.device)) for chunk in chunks]
            with _waits() as places:
                report = self.compute(on_device)
        if not places:
            self._seen.add(key)
        elif self._waited:
            self._give_up(f"{places[0]} waits for the GPU")
        self._waited = bool(places)
        return report

    def _record(self, chunks: Sequence[Chunk], entry: Any) -> _Recorded | None:
        """Record an update; nothing runs. None if it cannot be recorded."""
        device = self.stream.device
        static = [replace(chunk, batch=duplicate(chunk.batch, device)) for chunk in chunks]
        entry = map_state(torch.clone, entry)
        before = self.tbptt.state
        self.tbptt.state = entry
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(device)
        try:
            with recording(graph, self._pool):
                report = self.compute(static)
                left = self.tbptt.state
                if entry is not None:
                    _copy_state(entry, left)
        except RuntimeError as error:
            self._recover(device)
            reason = str(error).splitlines()[0]
            if is_out_of_memory(error):  # what the other graphs hold is free for updates without
                self.clear()
                reason += " Smaller batches leave room for graphs."
            self._give_up(reason)
            return None
        finally:
            self.tbptt.state = before
            for parameter in self.network.parameters():
                parameter.grad = None
        return _Recorded(graph, static, entry, left, report)

    def _replay(self, found: _Recorded, chunks: Sequence[Chunk], entry: Any) -> Tensor:
        for static, chunk in zip(found.chunks, chunks, strict=True):
            copy_into(static.batch, chunk.batch)
        if found.entry is not None and entry is not found.entry:
            _copy_state(found.entry, entry)
        found.graph.replay()
        found.uses += 1
        self.tbptt.state = map_state(torch.clone, found.left) if found.entry is None else found.entry
        return found.report

    def _recover(self, device: torch.device) -> None:
        """After a failed recording: random numbers continue from where they were."""
        generator = torch.cuda.default_generators[device.index or 0]
        with suppress(RuntimeError):
            generator.graphsafe_set_state(generator.clone_state())

    def _give_up(self, reason: str) -> None:
        if self.mode == "on":
            raise cannot_record(reason)
        self.reason = reason


def about_graphs(device: torch.device) -> str:
    """The way that updates run on a device by default, and the reason, for `unrolled doctor`."""
    if device.type == "cuda":
        return "in CUDA graphs by default; docs/gpu.md lists the settings without"
    why = "this torch is built without CUDA" if torch.version.cuda is None else "torch finds no GPU"
    return f"without CUDA graphs: {why}"


def cannot_record(reason: str) -> UserError:
    """The error of train.graph=on for updates that cannot be recorded."""
    return UserError(
        f"train.graph=on, but the update cannot be recorded in a CUDA graph: {reason}.",
        "Use train.graph=auto, which runs it without one.",
    )


@contextmanager
def _waits() -> Iterator[list[str]]:
    """A block that collects the lines at which this thread waits for the GPU; those that make batches may wait."""
    places: list[str] = []
    others: list[tuple[Any, ...]] = []
    mine = threading.get_ident()

    def note(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        if WAITS not in str(message):
            others.append((message, category, filename, lineno))
        elif threading.get_ident() == mine:
            places.append(f"{Path(filename).name}:{lineno}")

    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("warn")
        warnings.simplefilter("always")
        warnings.showwarning = note
        try:
            yield places
        finally:
            torch.cuda.set_sync_debug_mode(before)
    for warning in others:
        warnings.warn_explicit(*warning)


def _state_shapes(state: Any) -> Any:
    return tuple((tuple(tensor.shape), tensor.dtype) for tensor in leaves(state))


def _copy_state(into: Any, state: Any) -> None:
    for old, new in zip(leaves(into), leaves(state), strict=True):
        old.copy_(new)
