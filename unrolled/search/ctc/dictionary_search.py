"""Dictionary search in plain Python: the reference, and the search that takes scorers.

native/search/dictionary_search.cpp is the same search. Hypotheses with the same future share a slot: the same place in
the lexicon, and the same state of the language model (or, where sentences are told apart, the same words so far). A
slot has two scores, as in prefix search: of paths that end in a blank, and of paths that end in the place's label.

Both searches add the same numbers in the same order, so that exact ties are ties in both. Slots with equal totals are
ranked by the time at which their best paths came in the frame: first slots that stay, then moves, slots in their order,
labels in their order, words of a spelling in the order of the lexicon. Of equal paths the first is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from unrolled.search.ctc.hotwords import HotwordStates
from unrolled.search.ctc.label_scores import LabelScores
from unrolled.search.ctc.prefix_beam import merged
from unrolled.search.lexicon import UNKNOWN_WORD, Lexicon, LookAhead, SpellingPlace, WordModel
from unrolled.search.limits import SearchOptions

NEVER = -math.inf
UNKNOWN = -2  # the number of a word that is not in the lexicon


class Record(NamedTuple):
    """A label on a path, and all before it."""

    previous: Record | None
    label: int
    start: int  # its first frame
    previous_end: int  # the frame after the last of the label before
    word: int | None  # the word that ends here


class TreePosition(NamedTuple):
    """The place of a hypothesis in its word."""

    kind: str  # "begin" of a word, "inside" one of the lexicon, "unknown", or "end"
    label: int  # the last one; of "begin", the separator
    spelt: tuple[int, ...] = ()  # the labels of the word so far
    node: SpellingPlace | None = None  # of the lexicon's graph; not compared: `spelt` says the same

    def key(self) -> tuple[str, int, tuple[int, ...]]:
        return self.kind, self.label, self.spelt


@dataclass(frozen=True)
class Path:
    """The best path to a slot, or the sum of several, of which the best is remembered."""

    score: float = NEVER
    trace: Record | None = None
    end: int = 0  # the frame after the last label's last one


@dataclass
class Slot:
    place: TreePosition
    lm: Any
    history: tuple[Any, ...]
    labels: Any = ()  # all so far, where scorers need them; the state of hotwords
    blank: Path = Path()
    label: Path = Path()
    order: int = 0  # when its best path came in this frame: equal totals are ranked by it


class WordPath(NamedTuple):
    """A result: labels with their frames, and words; as in native/search/dictionary_search.h."""

    score: float
    complete: bool
    labels: list[int]
    starts: list[int]
    ends: list[int]
    words: list[int]
    word_ends: list[int]


class DictionarySearch:
    """A search that is fed frames; its result does not depend on how they are cut."""

    def __init__(
        self,
        lexicon: Lexicon,
        lm: WordModel | None,
        options: SearchOptions,
        blank: int,
        separator: int | None,
        recombine: bool,
        margin: float,
        extra: LabelScores | HotwordStates | None = None,
        doubles: bool = False,
    ) -> None:
        self.lexicon, self.lm, self.options = lexicon, lm, options
        self.blank, self.separator, self.recombine, self.margin = blank, separator, recombine, margin
        self.add_up, self.doubles = options.merge == "sum", doubles
        self.expected = LookAhead(lexicon, lm if options.look_ahead else None, options.lm_weight)
        begin = TreePosition("begin", -1 if separator is None else separator, node=lexicon.graph.root)
        self.extra: Any = extra
        start = () if extra is None else extra.start
        self.slots = [Slot(begin, None if lm is None else lm.initial(), (), start, blank=Path(0.0))]
        self.frame = self.clock = 0

    def feed(self, frames: Sequence[Sequence[float]]) -> None:
        for x in frames:
            self._step(x)

    def _step(self, x: Sequence[float]) -> None:
        new: dict[Any, Slot] = {}
        for slot in self.slots:
            self._stay(new, slot, x)
        for slot in self.slots:
            self._move(new, slot, x)
        self.frame += 1
        self.slots = self._best_slots(list(new.values()))

    def _stay(self, new: dict[Any, Slot], slot: Slot, x: Sequence[float]) -> None:
        """A blank, or the last label again."""
        total = self._total(slot)
        self._add(new, slot.place, slot, replace(total, score=total.score + x[self.blank]), blank=True)
        if slot.place.kind == "begin":  # between words: separators, with or without blanks between them
            if self.separator is not None:
                self._add(new, slot.place, slot, replace(total, score=total.score + x[self.separator]))
        else:
            again = replace(slot.label, score=slot.label.score + x[slot.place.label], end=self.frame + 1)
            self._add(new, slot.place, slot, again)

    def _move(self, new: dict[Any, Slot], slot: Slot, x: Sequence[float]) -> None:
        """A new label."""
        place, total = slot.place, self._total(slot)
        if place.kind == "end" and self.separator is not None:
            begin = TreePosition("begin", self.separator, node=self.lexicon.graph.root)
            score = total.score + x[self.separator] + self._added(slot, self.separator)
            self._add(new, begin, self._longer(slot, self.separator), replace(total, score=score))
            return
        begins = place.kind in ("begin", "end")
        if place.kind != "unknown":
            graph = self.lexicon.graph
            node = graph.root if begins or place.node is None else place.node
            for label, child in graph.children(node):
                path = self._arrival(slot, label, x[label] - self.expected(node))
                for word in self.lexicon.words_at(graph.rank(child)):
                    self._end_word(new, slot, path, label, word, self.lexicon.words[word], word)
                if graph.goes_on(child):
                    path = replace(path, score=path.score + self.expected(child))
                    inside = TreePosition("inside", label, (*(() if begins else place.spelt), label), child)
                    self._add(new, inside, self._longer(slot, label), self._recorded(path, label, None))
        if self.options.unknown_penalty is not None and (begins or place.kind == "unknown"):
            for label in range(len(x)):
                if label not in (self.blank, self.separator):
                    self._spell(new, slot, label, x[label], begins)

    def _spell(self, new: dict[Any, Slot], slot: Slot, label: int, score: float, begins: bool) -> None:
        """A label of a word that is not in the lexicon."""
        assert self.options.unknown_penalty is not None
        path = self._arrival(slot, label, score + (self.options.unknown_penalty if begins else 0.0))
        spelt = (*(() if begins else slot.place.spelt), label)
        graph = self.lexicon.graph
        known = graph.root if begins else slot.place.node
        known = graph.find(known, label) if known is not None else None
        if graph.rank(known) is None:
            self._end_word(new, slot, path, label, UNKNOWN, UNKNOWN_WORD, spelt)
        unknown = TreePosition("unknown", label, spelt, known)
        self._add(new, unknown, self._longer(slot, label), self._recorded(path, label, None))

    def _arrival(self, slot: Slot, label: int, score: float) -> Path:
        """A doubled label needs a blank between, unless there is none."""
        path = slot.blank if label == slot.place.label and not self.doubles else self._total(slot)
        return replace(path, score=path.score + score + self._added(slot, label))

    def _added(self, slot: Slot, label: int) -> float:
        """The scorers' score of one more label."""
        score: float = 0.0 if self.extra is None else self.extra.next(slot.labels, label)
        return score

    def _longer(self, slot: Slot, label: int) -> Slot:
        """The slot with one more label, where scorers tell label sequences apart."""
        return slot if self.extra is None else replace(slot, labels=self.extra.after(slot.labels, label))

    def _end_word(
        self, new: dict[Any, Slot], slot: Slot, path: Path, label: int, word: int, text: str, identity: Any
    ) -> None:
        score = path.score + self.options.word_bonus
        lm = None
        if self.lm is not None:
            log_prob, lm = self.lm.advance(slot.lm, text)
            score += self.options.lm_weight * log_prob
        after = replace(slot, lm=lm, history=() if self.recombine else (*slot.history, identity))
        recorded = self._recorded(replace(path, score=score), label, word)
        self._add(new, TreePosition("end", label), self._longer(after, label), recorded)

    def _recorded(self, path: Path, label: int, word: int | None) -> Path:
        return Path(path.score, Record(path.trace, label, self.frame, path.end, word), self.frame + 1)

    def _add(self, new: dict[Any, Slot], place: TreePosition, slot: Slot, path: Path, blank: bool = False) -> None:
        """Merges a path into its slot, which has the place given, and model state and history of `slot`."""
        if path.score == NEVER:
            return
        key = (place.key(), slot.lm, slot.history, slot.labels)
        into = new.setdefault(key, Slot(place, slot.lm, slot.history, slot.labels))
        if path.score > max(into.blank.score, into.label.score):
            self.clock += 1
            into.order = self.clock
        if blank:
            into.blank = self._merge(into.blank, path)
        else:
            into.label = self._merge(into.label, path)

    def _merge(self, a: Path, b: Path) -> Path:
        return replace(b if b.score > a.score else a, score=merged(a.score, b.score, self.add_up))

    def _total(self, slot: Slot) -> Path:
        return self._merge(slot.blank, slot.label)

    def _best_slots(self, slots: list[Slot]) -> list[Slot]:
        """The slots within all limits, in the order of their best paths."""
        slots.sort(key=lambda slot: slot.order)
        totals = [self._total(slot).score for slot in slots]
        best = max(totals, default=NEVER)
        order = sorted(range(len(slots)), key=lambda i: -totals[i])
        kept: list[int] = []
        counts: dict[Any, int] = {}
        for i in order:
            if totals[i] < best - self.margin or len(kept) == self.options.beam:
                break
            key = slots[i].place.key()
            counts[key] = counts.get(key, 0) + 1
            if self.options.per_node is None or counts[key] <= self.options.per_node:
                kept.append(i)
        return [slots[i] for i in sorted(kept)]

    def best(self, count: int) -> list[WordPath]:
        """The best so far, as if the frames had ended."""
        complete = [slot for slot in self.slots if slot.place.kind in ("begin", "end")]
        ended = bool(complete)
        scored = []
        for slot in complete or self.slots:
            total = self._total(slot)
            inside = slot.place.node if slot.place.kind == "inside" else None
            score = total.score - (0.0 if inside is None else self.expected(inside))
            if ended and self.lm is not None:
                score += self.options.lm_weight * self.lm.final(slot.lm)
            if self.extra is not None:
                score = self.extra.final(slot.labels, score)
            scored.append((score, total))
        found: dict[Any, WordPath] = {}
        for score, total in sorted(scored, key=lambda one: -one[0]):
            one = _trace_back(total, score, ended)
            key = _identity(one)
            if key in found:
                score = merged(found[key].score, score, self.add_up)
            found[key] = found.get(key, one)._replace(score=score)
        return sorted(found.values(), key=lambda one: -one.score)[:count]


def _trace_back(path: Path, score: float, complete: bool) -> WordPath:
    records, ends = [], []
    record, end = path.trace, path.end
    while record is not None:
        records.append(record)
        ends.append(end)
        end = record.previous_end
        record = record.previous
    records.reverse()
    words = [(record.word, i + 1) for i, record in enumerate(records) if record.word is not None]
    return WordPath(
        score,
        complete,
        [record.label for record in records],
        [record.start for record in records],
        ends[::-1],
        [word for word, _ in words],
        [end for _, end in words],
    )


def _identity(found: WordPath) -> tuple[Any, ...]:
    """Its words, unknown ones by their labels."""
    starts = [0, *found.word_ends][: len(found.words)]
    return tuple(
        word if word != UNKNOWN else tuple(found.labels[start:end])
        for word, start, end in zip(found.words, starts, found.word_ends, strict=True)
    )
