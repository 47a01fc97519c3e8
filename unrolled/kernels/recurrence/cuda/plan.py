"""Distribution of a recurrence over a GPU: the kernel, the number of thread blocks, and the memory of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch

from unrolled.kernels.cuda.launch import PORTABLE_CLUSTER_BLOCKS
from unrolled.kernels.recurrence.cuda.constants import (
    EXCHANGE_PADDING,
    FRAGMENT_BYTES,
    FRAGMENT_ROWS,
    MAX_CLUSTER_BLOCKS,
    MAX_REGISTER_FRAGMENTS,
    MAX_REGISTER_FRAGMENTS_OF_TWO,
    NORM_STATISTICS,
    REGISTER_FRAGMENTS_WITH_SPILL,
    SUMS_PADDING,
    THREADS,
    TILE_COLUMNS,
    TILE_ROWS,
    WARPS,
)

Pass = Literal["forward", "backward"]

BLOCK_UNITS = (16, 32)  # units of a thread block, which has a thread for every two units of a row
MAX_CLUSTER_SIZE = MAX_CLUSTER_BLOCKS * max(BLOCK_UNITS)  # units
MAX_HIDDEN_SIZE = 1536
NEVER = 10**9


@dataclass(frozen=True)
class Kind:
    """A cell as the kernels know it."""

    name: str
    source: str  # file of its kernels
    type: str  # C++ type
    gates: int
    saved: int  # numbers of a unit and step kept for the backward pass
    unit_weights: int  # weights that belong to one unit: peepholes, gains and shifts
    cell_state: bool  # whether it has a state c
    separate_candidate: bool = False  # the gradients of the candidate's input and of its product differ
    two_products: bool = False  # in a step: all gates but the last, then the last
    norm: bool = False  # layer norm, whose sums the blocks exchange
    cluster_source: str | None = "cluster.cu"  # file of its kernels for clusters, if there are any

    @property
    def separate_input_gradient(self) -> bool:
        """True if the gradients of the input's part differ from those of the recurrent product."""
        return self.separate_candidate or self.two_products or self.norm

    def cell_state_size(self, padded: int) -> int:
        """The numbers kept for c of all units, and for the statistics of the norms."""
        return padded + NORM_STATISTICS if self.norm else padded

    def constants(self) -> dict[str, int]:
        """The macros that the kernels are compiled with."""
        return {
            "GATES": self.gates,
            "SAVED": self.saved,
            "UNIT_WEIGHTS": self.unit_weights,
            "HAS_CELL_STATE": int(self.cell_state),
            "SEPARATE_CANDIDATE": int(self.separate_candidate),
            "SEPARATE_INPUT_GRADIENT": int(self.separate_input_gradient),
        }


KINDS: tuple[Kind, ...] = (
    Kind("RNN (tanh)", "recurrence.cu", "RNN<false>", 1, 1, 0, cell_state=False),
    Kind("RNN (relu)", "recurrence.cu", "RNN<true>", 1, 1, 0, cell_state=False),
    Kind("LSTM", "recurrence.cu", "LSTM<NONE>", 4, 4, 0, cell_state=True),
    Kind("LSTM, peepholes, o sees c_t", "recurrence.cu", "LSTM<CURRENT>", 4, 4, 3, cell_state=True),
    Kind("LSTM, peepholes, o sees c_{t-1}", "recurrence.cu", "LSTM<PREVIOUS>", 4, 4, 3, cell_state=True),
    Kind("GRU", "recurrence.cu", "GRU", 3, 4, 1, cell_state=False, separate_candidate=True),
    Kind(
        "GRU, reset before", "gru_before.cu", "GRUBefore", 3, 3, 0, cell_state=False, two_products=True,
        cluster_source="gru_before_cluster.cu",
    ),
    Kind("LSTM, layer norm", "lstm_norm.cu", "LSTM<NONE>", 4, 8, 6, cell_state=True, norm=True, cluster_source=None),
)  # fmt: skip
RNN_TANH, RNN_RELU, LSTM, LSTM_CURRENT, LSTM_PREVIOUS, GRU, GRU_BEFORE, LSTM_NORM = range(len(KINDS))

NUMBERS = {torch.float16: "Half", torch.bfloat16: "BFloat"}


@dataclass(frozen=True)
class Product:
    """The recurrent product of a thread block: `sums` of each of its units, over tiles of 32 columns."""

    sums: int
    column_tiles: int
    units: int
    register_fragments: int = 0  # set if another product has fragments in registers too

    @property
    def fragments(self) -> int:
        """Fragments of the weights that a warp keeps."""
        return self.sums * self.units // FRAGMENT_ROWS * -(-self.column_tiles // WARPS)

    def bytes(self, rows: int) -> int:
        """Shared memory: fragments that do not fit into registers, and two sets of partial sums, which take turns."""
        fit = self.fragments if self.fragments <= MAX_REGISTER_FRAGMENTS else REGISTER_FRAGMENTS_WITH_SPILL
        spilled = max(0, self.fragments - (self.register_fragments or fit)) * WARPS * FRAGMENT_BYTES
        floats = 4 if self.sums == 3 else self.sums  # the sums of a unit take 4, 8 or 16 bytes
        return spilled + 2 * min(self.column_tiles, WARPS) * rows * (self.units * floats + SUMS_PADDING) * 4


@dataclass(frozen=True)
class DeviceLimits:
    """The resources of a GPU."""

    multiprocessors: int
    shared_bytes: int  # of one block
    clusters: tuple[tuple[int, int], ...] = ()  # (blocks of a cluster, clusters of that size that run at once)

    def part(self, share: int) -> DeviceLimits:
        """One of `share` equal parts of the GPU."""
        clusters = tuple((size, count // share) for size, count in self.clusters)
        return DeviceLimits(self.multiprocessors // share, self.shared_bytes, clusters)


@dataclass(frozen=True)
class Plan:
    """A launch: `blocks` of 256 threads for `rows` rows of the batch."""

    blocks: int
    units: int  # of a block
    rows: int
    group_rows: int
    chunk_rows: int
    shared_bytes: int
    accumulator_rows: int  # rows of partial gradients of biases and unit weights
    cluster: int = 1  # blocks of a cluster
    cooperative: bool = True  # whether all blocks run at once, not only those of a cluster
    rest: Plan | None = None  # for the remaining rows, beside the clusters, on the multiprocessors they leave

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return THREADS

    @property
    def in_cluster(self) -> bool:
        """True if a group is one cluster, whose blocks wait for no others (cluster.cu)."""
        return self.cluster > 1 and not self.cooperative

    @property
    def many_rows(self) -> bool:
        """True if a chunk has more rows than one product."""
        return self.chunk_rows > TILE_ROWS


def padded_size(hidden: int) -> int:
    """The number of units with padding: a multiple of 32, and of 64 up to 512 units."""
    multiple = 2 * TILE_COLUMNS if hidden <= MAX_CLUSTER_SIZE else TILE_COLUMNS
    return -(-hidden // multiple) * multiple


def products_of(kind: Kind, direction: Pass, padded: int, units: int) -> list[Product]:
    """The products of a step, in their order."""
    width = padded // TILE_COLUMNS
    gates = [kind.gates - 1, 1] if kind.two_products else [kind.gates]
    found = [Product(g, width, units) if direction == "forward" else Product(1, g * width, units) for g in gates]
    if not kind.two_products:
        return found
    fit = sum(product.fragments for product in found) <= MAX_REGISTER_FRAGMENTS_OF_TWO
    held = [p.fragments if fit else g * REGISTER_FRAGMENTS_WITH_SPILL // 3 for g, p in zip(gates, found, strict=True)]
    return [replace(product, register_fragments=count) for product, count in zip(found, held, strict=True)]


def make_plan(kind: Kind, direction: Pass, padded: int, batch: int, limits: DeviceLimits) -> Plan | None:
    """Clusters, which are faster, or groups of blocks, as many as run at once; None if the GPU is too small.

    Where not all clusters run at once: forward, the last rows run beside them, or all rows in groups of as few rows;
    backward, clusters wait for others to end where they can.
    """
    cluster = split = None
    if kind.cluster_source is not None and padded <= MAX_CLUSTER_SIZE:
        cluster = _cluster_plan(kind, direction, padded, batch, limits)
        if cluster is not None and (direction == "backward" or _waves(cluster.cluster, batch, limits) == 1):
            return cluster
        split = _split_plan(kind, direction, padded, batch, limits)
    if split is not None:
        return split
    grid = _grid_plan(kind, direction, padded, batch, limits)
    return grid if cluster is None or (grid is not None and grid.group_rows == cluster.group_rows) else cluster


def _grid_plan(kind: Kind, direction: Pass, padded: int, batch: int, limits: DeviceLimits) -> Plan | None:
    """Groups of blocks, each with some rows and all units.

    Blocks have more units where that leaves fewer rows to each group, since every block reads all rows of its group;
    but not if weights then leave the registers. That is still worth it where a step has two products, and backward,
    where a row has all gates, even with as many rows.
    """
    few, many = BLOCK_UNITS
    too_many = sum(p.fragments for p in products_of(kind, direction, padded, many)) > MAX_REGISTER_FRAGMENTS
    if kind.norm or (too_many and direction == "forward" and not kind.two_products):
        sizes: tuple[int, ...] = (few,)
    else:
        sizes = (few, many) if direction == "forward" else (many, few)
    plans = [_plan_with(units, kind, direction, padded, batch, limits) for units in sizes]
    return min((plan for plan in plans if plan is not None), key=lambda plan: plan.group_rows, default=None)


def _plan_with(units: int, kind: Kind, direction: Pass, padded: int, batch: int, limits: DeviceLimits) -> Plan | None:
    """Forward, a group's rows come in two chunks if there are enough: one is exchanged while the other is multiplied.

    Not where a step has two products: each chunk would wait for both. A batch that does not fit takes several launches.
    """
    group_blocks = padded // units
    most_groups = limits.multiprocessors // group_blocks
    if most_groups == 0:
        return None
    tiles = -(-batch // TILE_ROWS)
    group_tiles = -(-tiles // most_groups)
    while group_tiles > 0:
        groups = min(most_groups, -(-tiles // group_tiles))
        halves = direction == "forward" and not (kind.norm or kind.two_products)
        most = min(2 * THREADS // units // TILE_ROWS, -(-group_tiles // 2) if halves else group_tiles)
        for chunk_tiles in range(most, 0, -1):
            chunk_rows, chunks = chunk_tiles * TILE_ROWS, -(-group_tiles // chunk_tiles)
            shared = shared_bytes(kind, direction, padded, units, chunk_rows, chunks)
            if shared <= limits.shared_bytes:
                group_rows = group_tiles * TILE_ROWS
                rows = min(batch, groups * group_rows)
                return Plan(groups * group_blocks, units, rows, group_rows, chunk_rows, shared, groups * chunk_rows)
        group_tiles //= 2
    return None


def _cluster_plan(kind: Kind, direction: Pass, padded: int, batch: int, limits: DeviceLimits) -> Plan | None:
    """A cluster for every eight rows; None if the GPU has no clusters of that size.

    Blocks have more units where fewer clusters then wait for others to end. A GPU runs few clusters of more than eight
    blocks: those must all run at once.
    """
    sizes = {units: padded // units for units in BLOCK_UNITS}
    waves = {units: _waves(size, batch, limits) for units, size in sizes.items() if size <= PORTABLE_CLUSTER_BLOCKS}
    if not waves and _waves(sizes[max(BLOCK_UNITS)], batch, limits) == 1:
        waves[max(BLOCK_UNITS)] = 1
    units = min(waves, key=waves.__getitem__, default=0)  # the fewest units of equal waves
    if not units or waves[units] == NEVER:
        return None
    size, clusters = sizes[units], -(-batch // TILE_ROWS)
    shared = cluster_bytes(kind, direction, padded, units)
    rows = clusters * TILE_ROWS
    return Plan(clusters * size, units, batch, TILE_ROWS, TILE_ROWS, shared, rows, size, cooperative=False)


def _split_plan(kind: Kind, direction: Pass, padded: int, batch: int, limits: DeviceLimits) -> Plan | None:
    """As many clusters as run at once, and the last rows beside them, if groups of eight rows fit there."""
    size = padded // max(BLOCK_UNITS)
    most = _most_clusters(size, limits)
    rows = most * TILE_ROWS
    if not 0 < rows < batch:
        return None
    left = DeviceLimits(limits.multiprocessors - most * size, limits.shared_bytes)
    cluster = _cluster_plan(kind, direction, padded, rows, limits)
    rest = _grid_plan(kind, direction, padded, batch - rows, left)
    if cluster is None or rest is None or rest.group_rows > TILE_ROWS or rest.rows < batch - rows:
        return None
    return replace(cluster, rest=rest)


def _waves(size: int, batch: int, limits: DeviceLimits) -> int:
    """Number of times that clusters of `size` blocks, one for every eight rows, fill the GPU one after the other."""
    most = _most_clusters(size, limits)
    return -(-batch // TILE_ROWS // most) if most else NEVER


def _most_clusters(size: int, limits: DeviceLimits) -> int:
    return next((count for of, count in limits.clusters if of >= size), 0)


def cluster_bytes(kind: Kind, direction: Pass, padded: int, units: int) -> int:
    """Shared memory of a block in a cluster: forward, every h and partial sums; backward, sums and gates; all twice."""
    products = products_of(kind, direction, padded, units)
    if direction == "forward":
        broadcasts = len(products) * 2 * TILE_ROWS * (padded + EXCHANGE_PADDING) * 2
        if kind.two_products:  # each gate has its own product
            products = [Product(1, padded // TILE_COLUMNS, units)] * kind.gates
        return broadcasts + sum(product.bytes(TILE_ROWS) for product in products)
    gates = [product.column_tiles * TILE_COLUMNS // padded for product in products]
    columns = [-(-count * units // TILE_COLUMNS) * TILE_COLUMNS for count in gates]
    accumulators = 4 * 2 * THREADS * kind.unit_weights
    return sum(2 * TILE_ROWS * (4 * padded + 2 * (count + EXCHANGE_PADDING)) for count in columns) + accumulators


def shared_bytes(kind: Kind, direction: Pass, padded: int, units: int, chunk_rows: int, chunks: int) -> int:
    """Shared memory of a block: that of its products, two numbers of each unit and row, and biases or accumulators."""
    products = sum(product.bytes(chunk_rows) for product in products_of(kind, direction, padded, units))
    more = kind.gates * units if direction == "forward" else 2 * THREADS * (kind.gates + kind.unit_weights)
    return products + 4 * (2 * chunks * chunk_rows * units + more)
