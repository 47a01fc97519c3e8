"""How a recurrence is spread over a GPU: which kernel, how many blocks, what each of them has to hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

Pass = Literal["forward", "backward"]

# The kernels' own measures (weights.cuh).
WARPS, THREADS, BLOCK, TILE_ROWS, MOST_HELD, HELD_OF_MORE = 8, 256, 32, 8, 16, 14
UNITS = (16, 32)  # of a block of threads, which has a thread for every two units of a row
MOST_OF_CLUSTER = 8  # blocks that reach into each other's shared memory
WIDEST_OF_CLUSTER = MOST_OF_CLUSTER * max(UNITS) // BLOCK  # of those that are a whole group (cluster.cu)
TEAMS: dict[Pass, tuple[int, ...]] = {"forward": (4, 2), "backward": (8, 4, 2)}  # that share a product (team.cuh)
WIDEST = 1536


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


KINDS: tuple[Kind, ...] = (
    Kind("RNN (tanh)", "recurrence.cu", "RNN<false>", 1, 1, 0, memory=False),
    Kind("RNN (relu)", "recurrence.cu", "RNN<true>", 1, 1, 0, memory=False),
    Kind("LSTM", "recurrence.cu", "LSTM<NONE>", 4, 4, 0, memory=True),
    Kind("LSTM, peepholes, o sees c_t", "recurrence.cu", "LSTM<CURRENT>", 4, 4, 3, memory=True),
    Kind("LSTM, peepholes, o sees c_{t-1}", "recurrence.cu", "LSTM<PREVIOUS>", 4, 4, 3, memory=True),
    Kind("GRU", "recurrence.cu", "GRU", 3, 4, 1, memory=False, candidate=True),
    Kind("GRU, reset before", "gru_before.cu", "GRU", 3, 3, 0, memory=False, twice=True),
)
RNN_TANH, RNN_RELU, LSTM, LSTM_CURRENT, LSTM_PREVIOUS, GRU, GRU_BEFORE = range(len(KINDS))

NUMBERS = {torch.float16: "Half", torch.bfloat16: "BFloat"}


@dataclass(frozen=True)
class Product:
    """The recurrent product of a block of threads: so many sums of each of its units, over so many gates' columns.

    `team` blocks may share it, each with its part of the columns (team.cuh).
    """

    sums: int
    gates: int
    width: int
    units: int
    team: int = 1

    @property
    def tiles(self) -> int:
        """16 rows of weights each."""
        return self.team * self.sums * self.units // 16

    @property
    def part_blocks(self) -> int:
        """Of 32 columns, in the part that a block of a team reads."""
        return -(-self.gates * self.width // self.team)

    @property
    def split(self) -> int:
        """Warps of a team's block that share the columns of a tile."""
        return max(1, WARPS // self.tiles)

    @property
    def pieces(self) -> int:
        """Weights of a warp, 16 by 32 each."""
        if self.team == 1:
            return self.tiles * -(-self.gates * self.width // WARPS)
        return -(-self.tiles // WARPS) * -(-self.part_blocks // self.split)

    @property
    def spare_bytes(self) -> int:
        """Weights that do not fit into registers."""
        return (self.pieces - HELD_OF_MORE) * WARPS * 32 * 32 if self.pieces > MOST_HELD else 0

    def bytes(self, chunk_rows: int, chunks: int) -> int:
        """In shared memory: spare weights, sums on their way (those of even and of odd steps), and what a team reads."""
        if self.team == 1:
            wide = 4 if self.sums == 3 else self.sums  # those of a unit fill 4, 8 or 16 bytes
            warps = min(self.gates * self.width, WARPS)
            return self.spare_bytes + 2 * warps * chunk_rows * (self.units * wide + 4) * 4
        of_eight_rows = self.team * self.split * self.sums * self.units // 2 * (2 * TILE_ROWS + 4)
        pitch = (self.part_blocks + 1 - self.part_blocks % 2) * BLOCK
        sums = 2 * chunks * chunk_rows // TILE_ROWS * of_eight_rows * 4
        return self.spare_bytes + sums + 2 * chunk_rows * pitch * 2


@dataclass(frozen=True)
class Limits:
    """What a GPU has."""

    multiprocessors: int
    shared_bytes: int  # of one block
    clusters: tuple[tuple[int, int], ...] = ()  # blocks that reach into each other's memory: how many such, of each size

    def groups(self, blocks: int, team: int) -> int:
        """How many times so many blocks run at once, in clusters of `team`."""
        if team == 1:
            return self.multiprocessors // blocks
        return dict(self.clusters).get(team, 0) // (blocks // team) if blocks % team == 0 else 0

    def part(self, share: int) -> Limits:
        """One of so many parts of the GPU."""
        return Limits(
            self.multiprocessors // share, self.shared_bytes, tuple((size, n // share) for size, n in self.clusters)
        )


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

    @property
    def near(self) -> bool:
        """Whether a group is one cluster, and blocks wait for no others (cluster.cu)."""
        return self.cluster > 1 and not self.cooperative

    @property
    def team(self) -> int:
        """Blocks that share a product (team.cuh)."""
        return 1 if self.near else self.cluster


def width_blocks(hidden: int) -> int:
    """Blocks of 32 units; the last is filled up with units that have no weights.

    Up to 256 units the last two are, and of more the last four where that adds little: a team is up to eight blocks of 16.
    """
    blocks = -(-hidden // BLOCK)
    if blocks <= WIDEST_OF_CLUSTER:
        return blocks + blocks % 2
    filled = -(-blocks // 4) * 4
    return filled if 16 * (filled - blocks) <= blocks else blocks


def products_of(kind: Kind, direction: Pass, width: int, units: int, team: int = 1) -> list[Product]:
    """What is multiplied at a step, one after the other."""
    gates = [kind.gates - 1, 1] if kind.twice else [kind.gates]
    return [
        Product(g, 1, width, units, team) if direction == "forward" else Product(1, g, width, units, team)
        for g in gates
    ]


def make_plan(kind: Kind, direction: Pass, width: int, batch: int, limits: Limits) -> Plan | None:
    """Groups of rows, as many as the GPU runs at once, each with all units; None if the GPU is too small.

    Blocks have more units where that leaves fewer rows to each group: a group reads all its rows once for each block, or
    for each team. But not if weights then leave the registers; it pays nevertheless where a row has all gates, backward.
    """
    if limits.clusters and not kind.twice and width <= WIDEST_OF_CLUSTER:
        return _cluster_plan(kind, direction, width, batch)
    few, many = UNITS
    too_many = sum(product.pieces for product in products_of(kind, direction, width, many)) > MOST_HELD
    ways = [(few, team) for team in TEAMS[direction]] + [(few, 1)]
    if not too_many or (direction == "backward" and not kind.twice):
        ways.append((many, 1))
    plans = [_plan_with(units, team, kind, direction, width, batch, limits) for units, team in ways]
    found = [plan for plan in plans if plan is not None]
    return min(found, key=lambda plan: (-plan.rows, plan.group_rows), default=None)


def _plan_with(
    units: int, team: int, kind: Kind, direction: Pass, width: int, batch: int, limits: Limits
) -> Plan | None:
    """Forward, a group's rows come in two chunks if there are enough: one is on its way while the other is multiplied.

    A batch that does not fit takes several launches.
    """
    slices = width * BLOCK // units
    most_groups = limits.groups(slices, team)
    if most_groups == 0:
        return None
    tiles = -(-batch // TILE_ROWS)
    tiles_of_group = -(-tiles // most_groups)
    while tiles_of_group > 0:
        groups = min(most_groups, -(-tiles // tiles_of_group))
        wanted = -(-tiles_of_group // 2) if direction == "forward" else tiles_of_group
        most = 2 * THREADS // units // TILE_ROWS
        for chunk_tiles in range(min(most, wanted), 0, -1):
            chunk_rows, chunks = chunk_tiles * TILE_ROWS, -(-tiles_of_group // chunk_tiles)
            shared = shared_bytes(kind, direction, width, units, team, chunk_rows, chunks)
            if shared <= limits.shared_bytes:
                group_rows = tiles_of_group * TILE_ROWS
                rows = min(batch, groups * group_rows)
                return Plan(groups * slices, units, rows, group_rows, chunk_rows, shared, groups * chunk_rows, team)
        tiles_of_group //= 2
    return None


def _cluster_plan(kind: Kind, direction: Pass, width: int, batch: int) -> Plan:
    """A cluster for every eight rows; those that find no room wait for others to end."""
    units = next(units for units in UNITS if width * BLOCK // units <= MOST_OF_CLUSTER)
    size, clusters = width * BLOCK // units, -(-batch // TILE_ROWS)
    shared = cluster_bytes(kind, direction, width, units)
    tally_rows = clusters * TILE_ROWS
    return Plan(clusters * size, units, batch, TILE_ROWS, TILE_ROWS, shared, tally_rows, size, cooperative=False)


def cluster_bytes(kind: Kind, direction: Pass, width: int, units: int) -> int:
    """What a block of a cluster keeps in shared memory, twice: every h and partial sums; or sums and gates."""
    if direction == "forward":
        (product,) = products_of(kind, direction, width, units)
        return 2 * TILE_ROWS * (width * BLOCK + 32) * 2 + product.bytes(TILE_ROWS, 1)
    columns = -(-kind.gates * units // BLOCK) * BLOCK
    return 2 * TILE_ROWS * (4 * width * BLOCK + 2 * (columns + 32))


def shared_bytes(kind: Kind, direction: Pass, width: int, units: int, team: int, chunk_rows: int, chunks: int) -> int:
    """What a block keeps in shared memory: what its products do, two numbers of each unit and row, tallies."""
    products = sum(p.bytes(chunk_rows, chunks) for p in products_of(kind, direction, width, units, team))
    tallied = 2 * THREADS * (kind.gates + kind.own) if direction == "backward" else 0
    return products + 4 * (2 * chunks * chunk_rows * units + tallied)
