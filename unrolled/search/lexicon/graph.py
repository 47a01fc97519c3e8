"""The graph of all spellings of a lexicon: a prefix tree, or the minimal automaton, where word ends are shared too."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Labels = tuple[int, ...]


class SpellingPlace(NamedTuple):
    """The beginning of some spellings: a node, and the number of spellings that come before all of them in order.

    In a tree the node alone says where a search is. In an automaton several beginnings lead to one node; the rank tells
    them apart, so that equal places always have equal spellings behind them, in both graphs.
    """

    node: int
    rank: int


@dataclass
class _Open:
    """A node whose spellings are still being read."""

    final: bool = False
    count: int = 0  # spellings from here on, the one that ends here included
    arcs: list[tuple[int, int, int]] = field(default_factory=list)  # label, node, spellings before it


class SpellingGraph:
    """Spellings, in order and each once, as arrays of nodes and arcs.

    Every arc holds how many spellings of its node come before those behind it. The sum along a path is the rank of the
    spelling that ends there (Lucchesi & Kowaltowski 1993). The spellings behind a place are a range of ranks.

    With `share_ends`, nodes with the same future are one: the minimal automaton, built spelling by spelling from sorted
    input (Daciuk et al. 2000).

    >>> spellings = [(1, 3), (1, 3, 5), (2, 3), (2, 3, 5)]
    >>> SpellingGraph(spellings).size, SpellingGraph(spellings, share_ends=True).size
    (7, 4)
    >>> graph = SpellingGraph(spellings, share_ends=True)
    >>> graph.rank(graph.find(graph.find(graph.root, 2), 3))
    2
    """

    def __init__(self, spellings: Sequence[Labels], *, share_ends: bool = False) -> None:
        self.share_ends = share_ends
        self._first = array("i", [0])  # of each node: its first arc
        self._labels, self._targets, self._skips = array("i"), array("i"), array("i")  # of each arc
        self._counts = array("i")  # of each node: the spellings from it on
        self._final = bytearray()
        self._known: dict[tuple[bool, tuple[tuple[int, int, int], ...]], int] = {}
        self.root = SpellingPlace(self._built(spellings), 0)
        self._known.clear()

    def _built(self, spellings: Sequence[Labels]) -> int:
        """Reads all spellings; the number of the root."""
        path, last = [_Open()], Labels()
        for spelling in spellings:
            common = 0
            while common < min(len(last), len(spelling)) and last[common] == spelling[common]:
                common += 1
            self._close(path, last, common)
            path += [_Open() for _ in spelling[common:]]
            path[-1].final, path[-1].count = True, 1
            last = spelling
        self._close(path, last, 0)
        return self._node(path[0])

    def _close(self, path: list[_Open], spelling: Labels, depth: int) -> None:
        """Stores the nodes of a path that are deeper: no later spelling goes through them."""
        while len(path) > depth + 1:
            node = path.pop()
            parent = path[-1]
            parent.arcs.append((spelling[len(path) - 1], self._node(node), parent.count))
            parent.count += node.count

    def _node(self, node: _Open) -> int:
        key = (node.final, tuple(node.arcs))
        if self.share_ends and key in self._known:
            return self._known[key]
        for store, values in zip(
            (self._labels, self._targets, self._skips), zip(*node.arcs, strict=True), strict=False
        ):
            store.extend(values)
        number = len(self._final)
        self._first.append(len(self._labels))
        self._counts.append(node.count)
        self._final.append(node.final)
        if self.share_ends:
            self._known[key] = number
        return number

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self._final)

    @property
    def arcs(self) -> int:
        return len(self._labels)

    @property
    def memory(self) -> int:
        """Bytes of all arrays."""
        arrays = (self._first, self._labels, self._targets, self._skips, self._counts)
        return sum(one.itemsize * len(one) for one in arrays) + len(self._final)

    def children(self, place: SpellingPlace) -> Iterator[tuple[int, SpellingPlace]]:
        """Every label that may follow, in order, and the place after it."""
        node, rank = place
        for arc in range(self._first[node], self._first[node + 1]):
            yield self._labels[arc], SpellingPlace(self._targets[arc], rank + self._skips[arc])

    def find(self, place: SpellingPlace, label: int) -> SpellingPlace | None:
        """The place after a label, if a spelling goes on with it."""
        node, rank = place
        end = self._first[node + 1]
        arc = bisect_left(self._labels, label, self._first[node], end)
        if arc == end or self._labels[arc] != label:
            return None
        return SpellingPlace(self._targets[arc], rank + self._skips[arc])

    def goes_on(self, place: SpellingPlace) -> bool:
        """True if a spelling goes on from here."""
        return self._first[place.node] < self._first[place.node + 1]

    def rank(self, place: SpellingPlace | None) -> int | None:
        """The number, in order, of the spelling that ends here, if one does."""
        return place.rank if place is not None and self._final[place.node] else None

    def ranks(self, place: SpellingPlace) -> range:
        """The numbers of all spellings that begin so."""
        return range(place.rank, place.rank + self._counts[place.node])
