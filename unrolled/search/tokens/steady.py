"""Steps of fixed shapes, which never look at a value: on a GPU they are recorded once and then replayed.

A search of this kind keeps all it knows in buffers of its own. A step reads and overwrites them; the host starts steps
ahead of the GPU, and reads results some steps later.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from unrolled.errors import UserError, note
from unrolled.kernels.cuda.recording import recorded
from unrolled.search.tokens.token_model import Rows, Shared, TokenModel, mapped

MOST_KEPT = 32  # recorded searches of a network
AHEAD = 4  # steps that the host starts before it looks at the result of the first of them


class GraphCache:
    """The recorded searches of one network, by their shapes and settings; a copy of the network begins with none."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Any, Any] = OrderedDict()
        self._weights: tuple[int, ...] = ()
        self._pool: Any = None
        self.narrow = NarrowWeights(())

    def __deepcopy__(self, memo: Any) -> GraphCache:
        return GraphCache()

    def __reduce__(self) -> tuple[type[GraphCache], tuple[()]]:
        return GraphCache, ()

    def __len__(self) -> int:
        return len(self._kept)

    def check(self, weights: tuple[int, ...]) -> None:
        """Forget all if the weights were moved: graphs read them where they were."""
        if weights != self._weights:
            self._kept.clear()
            self._weights, self._pool, self.narrow = weights, None, NarrowWeights(weights)

    def pool(self) -> Any:
        """The memory that all graphs share."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        return self._pool

    @contextmanager
    def borrowed(self, key: Any, make: Callable[[], Any]) -> Iterator[Any]:
        """A search of this key for one user at a time; it is made if none is there, and kept afterwards."""
        found = self._kept.pop(key, None)
        weights = self._weights
        search = make() if found is None else found
        try:
            yield search
        finally:
            if weights == self._weights:
                self._kept[key] = search
                while len(self._kept) > MOST_KEPT:
                    self._kept.popitem(last=False)


class NarrowWeights(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Inside the block, a conversion of a weight to another precision gives a copy that was made before.

    So recorded steps do not convert the weights each time. `refresh` makes the copies anew from the weights.
    """

    def __init__(self, weights: Collection[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._weights = frozenset(weights)  # their addresses
        self._made: dict[Any, tuple[Tensor, Tensor]] = {}  # weights, or views of them, and their copies

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._to_copy.default and args[0].untyped_storage().data_ptr() in self._weights:
            weight = args[0]
            key = weight.data_ptr(), weight.shape, weight.stride(), tuple(sorted((kwargs or {}).items(), key=str))
            if key not in self._made:
                self._made[key] = weight, func(*args, **(kwargs or {}))
            return self._made[key][1]
        return func(*args, **(kwargs or {}))

    def refresh(self) -> None:
        """Bring the copies up to date."""
        if self._made:
            weights, copies = zip(*self._made.values(), strict=True)
            torch._foreach_copy_(list(copies), list(weights))


def graphs_of(network: nn.Module) -> GraphCache:
    """The recorded searches of a network."""
    cache: GraphCache = network.__dict__.setdefault("_graphs", GraphCache())
    cache.check(tuple(weight.data_ptr() for weight in (*network.parameters(), *network.buffers())))
    return cache


@runtime_checkable
class SteadyModel(TokenModel, Protocol):
    """A TokenModel that has steps of fixed shapes."""

    @property
    def device(self) -> torch.device: ...
    @property
    def graphs(self) -> GraphCache | None:
        """Its recorded searches; None: it has no such steps now."""
        ...

    def steady(self, memory: Any, rows: int, width: int, steps: int) -> tuple[TokenModel, Any] | None:
        """A model for at most `steps` tokens whose states keep their shapes, and its state before the first step.

        None: it has none for so many. The state has a row for each of `rows` inputs; `step` gets `width` of each.
        Positions of the memory may be padded. A part that is `Shared` may be changed in place.
        """
        ...


class StateBuffers:
    """The tensors of a model's state at fixed places: `own` has `width` rows for each of `shared`.

    All of them are zero at first: the steps before a recording begin with that.
    """

    def __init__(self, state: Any, width: int) -> None:
        self.width = width
        self.state = mapped(state, self._made)
        self.own, self.shared = leaves_of(self.state)

    def _made(self, leaf: Any) -> Any:
        if isinstance(leaf, Rows):
            raise UserError("A state of Python objects has no fixed shapes.", "Use tensors.")
        if isinstance(leaf, Shared):
            return Shared(mapped(leaf.value, lambda tensor: torch.zeros_like(tensor)))
        return leaf.new_zeros(len(leaf) * self.width, *leaf.shape[1:])

    def widen(self, state: Any) -> None:
        """Take a state after a step as the example: a buffer holds the numbers of both without rounding them."""
        own, _ = leaves_of(state)
        _check_alike(self.own, own)
        kept = [  # in the order of the step's memory, so that no dimensions have to be swapped
            torch.zeros_like(new, dtype=torch.promote_types(old.dtype, new.dtype))
            for old, new in zip(self.own, own, strict=True)
        ]
        places = iter(kept)
        self.state = mapped(self.state, lambda leaf: leaf if isinstance(leaf, Shared) else next(places))
        self.own = kept

    def load(self, state: Any) -> None:
        """Begin with a state that has a row for each input."""
        own, shared = leaves_of(state)
        for kept, new in zip(self.own, own, strict=True):
            kept.view(len(new), self.width, *kept.shape[1:]).copy_(new[:, None].expand(-1, self.width, *new.shape[1:]))
        for kept, new in zip(self.shared, shared, strict=True):
            kept.copy_(new)

    def follow(self, state: Any, rows: Tensor | None = None) -> None:
        """Go on with the state of a step, of which `rows` are taken; what is shared stays."""
        own, _ = leaves_of(state)
        held = {kept.untyped_storage().data_ptr() for kept in self.own}
        pairs = [(kept, new) for kept, new in zip(self.own, own, strict=True) if rows is not None or new is not kept]
        pairs = [  # not overwritten yet
            (kept, new.clone() if new.untyped_storage().data_ptr() in held else new) for kept, new in pairs
        ]
        for kept, new in pairs:
            if rows is None:
                kept.copy_(new)
            elif new.dtype == kept.dtype and kept.is_contiguous():
                torch.index_select(new, 0, rows, out=kept)
            else:
                kept.copy_(new.index_select(0, rows))


def leaves_of(state: Any) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors of a state, and those that are shared."""
    own: list[Tensor] = []
    shared: list[Tensor] = []

    def visit(leaf: Any) -> Any:
        if isinstance(leaf, Shared):
            shared.extend(leaves_of(leaf.value)[0])
        else:
            own.append(leaf)
        return leaf

    mapped(state, visit)
    return own, shared


def _check_alike(before: list[Tensor], after: list[Tensor]) -> None:
    shapes = [[tuple(one.shape) for one in some] for some in (before, after)]
    if shapes[0] != shapes[1]:
        raise UserError(
            f"A step changed the shapes of its state from {shapes[0]} to {shapes[1]}.",
            "`steady` has to give a model whose states keep their shapes.",
        )


def shapes_of(state: Any) -> Any:
    """The shapes and types of a state's tensors, for the key of a search."""
    own, shared = leaves_of(state)
    return tuple((tuple(one.shape), one.dtype) for one in (*own, *shared)), len(own)


def precision_of(device: torch.device) -> Any:
    """The precision of matrix products in the current block, for the key of a search."""
    kind = device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


class Repeated:
    """A step that is run again and again: replayed on a GPU, called elsewhere. `together` steps are one graph."""

    def __init__(self, step: Callable[[], None], device: torch.device, cache: GraphCache, together: int = 1) -> None:
        self._step, self._device, self._cache, self._together = step, device, cache, together
        self._graph: torch.cuda.CUDAGraph | None = None
        self._several: torch.cuda.CUDAGraph | None = None  # recorded when it is first needed

    def record(self) -> None:
        """Record the step on a GPU; its buffers are not as they were afterwards."""
        if self._device.type != "cuda":
            return
        try:
            self._graph = self._recorded(self._step)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            note(f"The steps of the search run without a CUDA graph: {str(error).splitlines()[0]}")

    def _recorded(self, run: Callable[[], None], *, loaded: bool = False) -> torch.cuda.CUDAGraph:
        # autocast would keep copies of the weights from one step to the next: the graph would read old ones
        narrow, copies = precision_of(self._device), self._cache.narrow
        with torch.autocast("cuda", narrow, enabled=narrow is not None, cache_enabled=False), copies:
            return recorded(run, self._device, self._cache.pool(), loaded=loaded)[1]

    def _run_together(self) -> None:
        for _ in range(self._together):
            self._step()

    def begin(self) -> None:
        """Before the first of several steps: weights may have changed in place."""
        if self._graph is not None:
            self._cache.narrow.refresh()

    def __call__(self, count: int = 1) -> None:
        """Run some steps."""
        while self._graph is not None and 1 < self._together <= count:
            if self._several is None:
                self._several = self._recorded(self._run_together, loaded=True)
            self._several.replay()
            count -= self._together
        for _ in range(count):
            if self._graph is not None:
                self._graph.replay()
            else:
                self._step()


class LateFlag:
    """A number on the device that the host reads some steps later, so that it never waits for the last step."""

    def __init__(self, value: Tensor) -> None:
        self._value, self._on_gpu = value, value.is_cuda
        self._slots = [torch.empty_like(value, device="cpu", pin_memory=self._on_gpu) for _ in range(AHEAD)]
        self._events: list[Any] = [torch.cuda.Event() for _ in range(AHEAD if self._on_gpu else 0)]  # type: ignore[no-untyped-call]
        self._count = 0

    def begin(self) -> None:
        self._count = 0

    def send(self) -> None:
        """Copy the number to the host as it is after the steps started so far."""
        slot = self._count % AHEAD
        self._slots[slot].copy_(self._value, non_blocking=True)
        if self._on_gpu:
            self._events[slot].record()
        self._count += 1

    def read(self) -> int | None:
        """The number of AHEAD copies ago, on a CPU that of the last; None: there is none."""
        if not self._on_gpu:
            return int(self._value)
        if self._count < AHEAD:
            return None
        slot = self._count % AHEAD
        self._events[slot].synchronize()
        return int(self._slots[slot])


def rounded_up(number: int) -> int:
    """The next of 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, …: sizes of which few are needed.

    >>> [rounded_up(number) for number in (1, 3, 9, 17, 33, 65, 100)]
    [1, 4, 16, 24, 48, 96, 128]
    """
    power = 1 << max(0, number - 1).bit_length()
    return power * 3 // 4 if power > 16 and number <= power * 3 // 4 else power
