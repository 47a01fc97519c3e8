"""How a recurrence is spread over a GPU: which kernel, how many blocks, what each of them has to hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch

Pass = Literal["forward", "backward"]

# The kernels' own measures (weights.cuh).
WARPS, THREADS, BLOCK, TILE_ROWS, MOST_HELD, HELD_OF_MORE, MOST_HELD_OF_TWO = 8, 256, 32, 8, 16, 14, 18
UNITS = (16, 32)  # of a block of threads, which has a thread for every two units of a row
MOST_OF_CLUSTER = 16  # blocks that reach into each other's shared memory; more than 8 only if asked for
PORTABLE = 8
WIDEST_OF_CLUSTER = MOST_OF_CLUSTER * max(UNITS) // BLOCK  # in blocks of 32 units (cluster.cu)
WIDEST = 1536
NEVER = 10**9


@dataclass(frozen=True)
class Kind:
    """A cell as the kernels know it."""

    name: str
    source: str  # the file of its kernels
    type: str  # its C++ type
    gates: int
    saved: int  # numbers of a unit and step kept for the backward pass
    own: int  # weights that a unit has for itself
    memory: bool  # whether it has a state c
    candidate: bool = False  # whether the candidate's x has another gradient than its product
    twice: bool = False  # whether a step has two products: all gates but the last, then the last
    norm: bool = False  # whether it has layer norm, and its blocks sums to exchange
    near: str | None = "cluster.cu"  # the file of its kernels in clusters, if there are any

    @property
    def another(self) -> bool:
        """Whether the gradients of the input's part are other numbers than those of the product."""
        return self.candidate or self.twice or self.norm

    def memory_width(self, width: int) -> int:
        """Of what is kept of c: it, and mean and deviation of two norms."""
        return width + 4 if self.norm else width


KINDS: tuple[Kind, ...] = (
    Kind("RNN (tanh)", "recurrence.cu", "RNN<false>", 1, 1, 0, memory=False),
    Kind("RNN (relu)", "recurrence.cu", "RNN<true>", 1, 1, 0, memory=False),
    Kind("LSTM", "recurrence.cu", "LSTM<NONE>", 4, 4, 0, memory=True),
    Kind("LSTM, peepholes, o sees c_t", "recurrence.cu", "LSTM<CURRENT>", 4, 4, 3, memory=True),
    Kind("LSTM, peepholes, o sees c_{t-1}", "recurrence.cu", "LSTM<PREVIOUS>", 4, 4, 3, memory=True),
    Kind("GRU", "recurrence.cu", "GRU", 3, 4, 1, memory=False, candidate=True),
    Kind("GRU, reset before", "gru_before.cu", "GRU", 3, 3, 0, memory=False, twice=True, near="gru_before_cluster.cu"),
    Kind("LSTM, layer norm", "lstm_norm.cu", "LSTM<NONE>", 4, 8, 6, memory=True, norm=True, near=None),
)
RNN_TANH, RNN_RELU, LSTM, LSTM_CURRENT, LSTM_PREVIOUS, GRU, GRU_BEFORE, LSTM_NORM = range(len(KINDS))

NUMBERS = {torch.float16: "Half", torch.bfloat16: "BFloat"}


@dataclass(frozen=True)
class Product:
    """The recurrent product of a block of threads: so many sums of each of its units, over blocks of 32 columns."""

    sums: int
    blocks: int
    units: int
    held: int = 0  # weights in registers, if another product has some too

    @property
    def pieces(self) -> int:
        """Weights of a warp, 16 by 32 each."""
        return self.sums * self.units // 16 * -(-self.blocks // WARPS)

    def bytes(self, rows: int) -> int:
        """In shared memory: weights that do not fit into registers, and two sets of partial sums, taking turns."""
        held = self.held or (self.pieces if self.pieces <= MOST_HELD else HELD_OF_MORE)
        spare = max(0, self.pieces - held) * WARPS * 32 * 32
        wide = 4 if self.sums == 3 else self.sums  # those of a unit fill 4, 8 or 16 bytes
        return spare + 2 * min(self.blocks, WARPS) * rows * (self.units * wide + 4) * 4


@dataclass(frozen=True)
class DeviceLimits:
    """What a GPU has."""

    multiprocessors: int
    shared_bytes: int  # of one block
    # of blocks that reach into each other's shared memory: how many run at once, if each has so many blocks
    clusters: tuple[tuple[int, int], ...] = ()

    def part(self, share: int) -> DeviceLimits:
        """One of so many parts of the GPU."""
        clusters = tuple((size, count // share) for size, count in self.clusters)
        return DeviceLimits(self.multiprocessors // share, self.shared_bytes, clusters)


@dataclass(frozen=True)
class Plan:
    """A launch: `blocks` of 256 threads for so many rows of the batch."""

    blocks: int
    units: int  # of a block
    rows: int
    group_rows: int
    chunk_rows: int
    shared_bytes: int
    tally_rows: int  # of all blocks that own a unit
    cluster: int = 1  # blocks of a cluster
    cooperative: bool = True  # whether all blocks run at once, not only those of a cluster
    rest: Plan | None = None  # for the rows after these, beside them: on what clusters leave of the GPU

    @property
    def near(self) -> bool:
        """Whether a group is one cluster, and blocks wait for no others (cluster.cu)."""
        return self.cluster > 1 and not self.cooperative

    @property
    def many_rows(self) -> bool:
        """Whether a chunk is more than one product's rows."""
        return self.chunk_rows > TILE_ROWS


def width_blocks(hidden: int) -> int:
    """Blocks of 32 units; the last is filled up with units that have no weights, and up to 512 units the last two."""
    blocks = -(-hidden // BLOCK)
    return blocks + blocks % 2 if blocks <= WIDEST_OF_CLUSTER else blocks


def products_of(kind: Kind, direction: Pass, width: int, units: int) -> list[Product]:
    """What is multiplied at a step, one after the other."""
    gates = [kind.gates - 1, 1] if kind.twice else [kind.gates]
    found = [Product(g, width, units) if direction == "forward" else Product(1, g * width, units) for g in gates]
    if not kind.twice:
        return found
    fit = sum(product.pieces for product in found) <= MOST_HELD_OF_TWO
    held = [product.pieces if fit else g * HELD_OF_MORE // 3 for g, product in zip(gates, found, strict=True)]
    return [replace(product, held=count) for product, count in zip(found, held, strict=True)]


def make_plan(kind: Kind, direction: Pass, width: int, batch: int, limits: DeviceLimits) -> Plan | None:
    """Clusters, which are faster, or groups of rows, as many as the GPU runs at once; None if it is too small.

    Clusters that do not all run at once: forward, the last rows may go beside them, or all to groups of as few rows;
    backward only where clusters cannot wait for others to end.
    """
    near = split = None
    if kind.near is not None and width <= WIDEST_OF_CLUSTER:
        near = _cluster_plan(kind, direction, width, batch, limits)
        if near is not None and (direction == "backward" or _waves(near.cluster, batch, limits) == 1):
            return near
        split = _split_plan(kind, direction, width, batch, limits)
    if split is not None:
        return split
    far = _far_plan(kind, direction, width, batch, limits)
    return far if near is None or (far is not None and far.group_rows == near.group_rows) else near


def _far_plan(kind: Kind, direction: Pass, width: int, batch: int, limits: DeviceLimits) -> Plan | None:
    """Groups of rows, each with all units.

    Blocks have more units where that leaves fewer rows to each group: a group reads all its rows once for each block.
    But not if weights then leave the registers; it pays nevertheless where a step has two products, and where a row has
    all gates, backward, even with as many rows.
    """
    few, many = UNITS
    too_many = sum(product.pieces for product in products_of(kind, direction, width, many)) > MOST_HELD
    if kind.norm or (too_many and direction == "forward" and not kind.twice):
        sizes: tuple[int, ...] = (few,)
    else:
        sizes = (few, many) if direction == "forward" else (many, few)
    plans = [_plan_with(units, kind, direction, width, batch, limits) for units in sizes]
    return min((plan for plan in plans if plan is not None), key=lambda plan: plan.group_rows, default=None)


def _plan_with(units: int, kind: Kind, direction: Pass, width: int, batch: int, limits: DeviceLimits) -> Plan | None:
    """Forward, a group's rows come in two chunks if there are enough: one is on its way while the other is multiplied.

    Not where a step has two products: each chunk would wait for both. A batch that does not fit takes several launches.
    """
    slices = width * BLOCK // units
    most_groups = limits.multiprocessors // slices
    if most_groups == 0:
        return None
    tiles = -(-batch // TILE_ROWS)
    tiles_of_group = -(-tiles // most_groups)
    while tiles_of_group > 0:
        groups = min(most_groups, -(-tiles // tiles_of_group))
        wanted = -(-tiles_of_group // 2) if direction == "forward" and not (kind.norm or kind.twice) else tiles_of_group
        most = 2 * THREADS // units // TILE_ROWS
        for chunk_tiles in range(min(most, wanted), 0, -1):
            chunk_rows, chunks = chunk_tiles * TILE_ROWS, -(-tiles_of_group // chunk_tiles)
            shared = shared_bytes(kind, direction, width, units, chunk_rows, chunks)
            if shared <= limits.shared_bytes:
                group_rows = tiles_of_group * TILE_ROWS
                rows = min(batch, groups * group_rows)
                return Plan(groups * slices, units, rows, group_rows, chunk_rows, shared, groups * chunk_rows)
        tiles_of_group //= 2
    return None


def _cluster_plan(kind: Kind, direction: Pass, width: int, batch: int, limits: DeviceLimits) -> Plan | None:
    """A cluster for every eight rows; None if there are no clusters of as many blocks as it takes.

    Blocks have more units where fewer clusters then wait for others to end. Of clusters of more than eight blocks a GPU
    has few: all must run at once.
    """
    sizes = {units: width * BLOCK // units for units in UNITS}
    waves = {units: _waves(size, batch, limits) for units, size in sizes.items() if size <= PORTABLE}
    if not waves and _waves(sizes[max(UNITS)], batch, limits) == 1:
        waves[max(UNITS)] = 1
    units = min(waves, key=waves.__getitem__, default=0)  # of equals the fewest
    if not units or waves[units] == NEVER:
        return None
    size, clusters = sizes[units], -(-batch // TILE_ROWS)
    shared, tally_rows = cluster_bytes(kind, direction, width, units), clusters * TILE_ROWS
    return Plan(clusters * size, units, batch, TILE_ROWS, TILE_ROWS, shared, tally_rows, size, cooperative=False)


def _split_plan(kind: Kind, direction: Pass, width: int, batch: int, limits: DeviceLimits) -> Plan | None:
    """As many clusters as run at once, and the last rows beside them, if they find room there in groups of eight."""
    size = width * BLOCK // max(UNITS)
    most = _most_clusters(size, limits)
    rows = most * TILE_ROWS
    if not 0 < rows < batch:
        return None
    left = DeviceLimits(limits.multiprocessors - most * size, limits.shared_bytes)
    near = _cluster_plan(kind, direction, width, rows, limits)
    rest = _far_plan(kind, direction, width, batch - rows, left)
    if near is None or rest is None or rest.group_rows > TILE_ROWS or rest.rows < batch - rows:
        return None
    return replace(near, rest=rest)


def _waves(size: int, batch: int, limits: DeviceLimits) -> int:
    """How often clusters of so many blocks, one for every eight rows, fill the GPU one after the other."""
    most = _most_clusters(size, limits)
    return -(-batch // TILE_ROWS // most) if most else NEVER


def _most_clusters(size: int, limits: DeviceLimits) -> int:
    return next((count for of, count in limits.clusters if of >= size), 0)


def cluster_bytes(kind: Kind, direction: Pass, width: int, units: int) -> int:
    """What a block of a cluster keeps in shared memory, twice: every h and partial sums; or sums and gates."""
    products = products_of(kind, direction, width, units)
    if direction == "forward":
        shown = len(products) * 2 * TILE_ROWS * (width * BLOCK + 32) * 2
        if kind.twice:  # each gate has a product of its own
            products = [Product(1, width, units)] * kind.gates
        return shown + sum(product.bytes(TILE_ROWS) for product in products)
    columns = [-(-product.blocks // width * units // BLOCK) * BLOCK for product in products]
    tally = 4 * 2 * THREADS * kind.own
    return sum(2 * TILE_ROWS * (4 * width * BLOCK + 2 * (count + 32)) for count in columns) + tally


def shared_bytes(kind: Kind, direction: Pass, width: int, units: int, chunk_rows: int, chunks: int) -> int:
    """What a block keeps in shared memory: what its products do, two numbers of each unit and row, and more."""
    products = sum(product.bytes(chunk_rows) for product in products_of(kind, direction, width, units))
    more = kind.gates * units if direction == "forward" else 2 * THREADS * (kind.gates + kind.own)
    return products + 4 * (2 * chunks * chunk_rows * units + more)
