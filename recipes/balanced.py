"""Is a string of parentheses balanced? Accuracy by length and by depth for vanilla RNN, GRU, LSTM and peephole LSTM.

    python recipes/balanced.py [--seeds 0,1,2] [--cells rnn,gru] [--out FOLDER]

"(a(b))c" is balanced; "(a(bc)", "(a))(b" and "a)" are not. Half of the strings are balanced. The others are balanced
strings with one mistake: a parenthesis turned round, a parenthesis replaced by a letter, or a pair put in the wrong
order, so that the counts agree and only the order tells. Guessing gives 50 %.

Lengths of training strings are sampled from 2 to 100, evenly over their logarithm, and so are the depths that fit in a
length. The short strings teach the rule; no other curriculum is needed. Test strings differ from training strings and
reach length 400: what lies beyond 100 is extrapolation. Settings not named here are those of `parentheses.py`. A run
that has a result is not repeated. Nothing needs to be downloaded.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
from pathlib import Path
from typing import Any

from common import machine, mistakes_told
from parentheses import SETTINGS as CLOSING
from parentheses import trained

DATA = ()  # the recipe makes its own
CELLS: dict[str, dict[str, Any]] = {
    "rnn": {"model.cell": "rnn"},
    "gru": {"model.cell": "gru"},
    "lstm": {"model.cell": "lstm"},
    "peephole": {"model.cell": "lstm", "model.peephole": "current"},
}
SETTINGS: dict[str, Any] = {**CLOSING, "train.epochs": 20, "train.lr": 4e-3}
TRAINING, TEST = 20_000, 10_000
LONGEST, FURTHEST = 100, 400  # of training, of testing
LENGTHS = (2, 7, 13, 26, 51, 101, 201, FURTHEST + 1)  # lengths that are scored together
DEPTHS = (1, 2, 3, 5, 9, 17, 33, 51, FURTHEST // 2 + 1)


def balanced(text: str) -> bool:
    """Every parenthesis that closes has one that opened before it, and none stays open.

    >>> [balanced(text) for text in ("(a(b))c", "(a(bc)", "(a))(b")]
    [True, False, False]
    """
    heights = heights_of(text)
    return min(heights) >= 0 and heights[-1] == 0


def heights_of(text: str) -> list[int]:
    """The number of open parentheses before the string and after each character."""
    return list(itertools.accumulate((char == "(") - (char == ")") for char in "a" + text))


def correct(source: random.Random, length: int, depth: int) -> str:
    """A balanced string with at least one pair, at most `depth` open at once."""
    found: list[str] = []
    height, highest = 0, 0
    for left in range(length, 0, -1):
        if height and (height >= left or source.random() < (0.45 if highest == depth else 0.2)):
            found.append(")")
        elif height < depth and height + 2 <= left and source.random() < 0.7:
            found.append("(")
        else:
            found.append(source.choice("ab"))
        height += (found[-1] == "(") - (found[-1] == ")")
        highest = max(height, highest)
    return "".join(found) if "(" in found else correct(source, length, depth)


def spoilt(source: random.Random, text: str) -> str:
    """A balanced string with one mistake."""
    places = [place for place, char in enumerate(text) if char in "()"]
    kind, place = source.choice(("turned", "lost", "order")), source.choice(places)
    if kind != "order":
        other = source.choice("ab") if kind == "lost" else "()"[text[place] == "("]
        return text[:place] + other + text[place + 1 :]
    heights = heights_of(text)
    low = [place for place in places if heights[place + (text[place] == ")")] == 0]  # the outer pairs
    pair = source.randrange(len(low) // 2)
    first, last = low[2 * pair], low[2 * pair + 1]
    inner = text[first + 1 : last]
    return text[:first] + ")" + inner + "(" + text[last + 1 :]


def strings(seed: int, count: int, shortest: int = 2, longest: int = LONGEST) -> list[tuple[str, str]]:
    """Labels and strings; lengths and depths are spread evenly over their logarithms."""
    source = random.Random(seed)
    found = []
    for number in range(count):
        length = round(shortest * (longest / shortest) ** source.random())
        text = correct(source, length, round((length // 2) ** source.random()))
        found.append(("no", spoilt(source, text)) if number % 2 else ("yes", text))
    return found


def part(edges: tuple[int, ...], value: int) -> str:
    """The name of the part between two edges that a value belongs to."""
    start, end = next(pair for pair in itertools.pairwise(edges) if pair[0] <= value < pair[1])
    return f"{start}–{end - 1}" if end - 1 > start else str(start)


def run(name: str, seed: int, device: str, changes: list[str]) -> dict[str, Any]:
    train = strings(2 * seed, TRAINING)
    known = {text for _, text in train}
    longer = strings(2 * seed + 10**6, TEST // 2, LONGEST + 1, FURTHEST)
    test = [row for row in strings(2 * seed + 1, TEST) + longer if row[1] not in known]
    model, minutes = trained(
        {**SETTINGS, **CELLS[name], "train.seed": seed, "train.device": device}, train, test, changes
    )
    answers = model.predict([text for _, text in test])
    right: dict[str, dict[str, list[bool]]] = {"length": {}, "depth": {}, "depth, over 100": {}, "label": {}}
    for (label, text), answer in zip(test, answers, strict=True):
        hit, depth = answer.label == label, max(1, max(heights_of(text)))
        right["length"].setdefault(part(LENGTHS, len(text)), []).append(hit)
        near = len(text) <= LONGEST
        right["depth" if near else "depth, over 100"].setdefault(part(DEPTHS, depth), []).append(hit)
        if near:
            right["label"].setdefault(label, []).append(hit)
    return {
        "cell": name,
        "seed": seed,
        **{
            key: {kind: round(statistics.mean(hits), 4) for kind, hits in found.items()} for key, found in right.items()
        },
        "strings": {key: {kind: len(hits) for kind, hits in found.items()} for key, found in right.items()},
        "parameters": model.num_parameters,
        "minutes": round(minutes, 2),
    }


def table(runs: list[dict[str, Any]], key: str, edges: tuple[int, ...]) -> str:
    """Mean accuracy over the seeds, and the range."""
    cells = [cell for cell in CELLS if any(one["cell"] == cell for one in runs)]
    lines = [f"{key:<16}" + "".join(f"{cell:>24}" for cell in cells)]
    for name in (part(edges, start) for start in edges[:-1]):
        line = f"{name:<16}"
        for cell in cells:
            scores = [100 * one[key][name] for one in runs if one["cell"] == cell and name in one[key]]
            shown = f"{statistics.mean(scores):.1f} ({min(scores):.1f} to {max(scores):.1f})" if scores else "–"
            line += f"{shown:>24}"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="not needed: the strings are made from a seed")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--cells", default=",".join(CELLS))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="another setting, to try it")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    stored = options.out / "balanced.json"
    runs = json.loads(stored.read_text())["runs"] if stored.exists() else []
    made = {(one["cell"], one["seed"]) for one in runs}
    for seed in map(int, options.seeds.split(",")):
        for cell in options.cells.split(","):
            if (cell, seed) in made:
                continue
            runs.append(run(cell, seed, options.device, options.set))
            print(cell, seed, runs[-1]["length"], f"{runs[-1]['minutes']} minutes", flush=True)
            facts = {"command": "python recipes/balanced.py", "machine": machine(options.device), "settings": SETTINGS}
            stored.write_text(json.dumps(facts | {"runs": runs}, indent=1) + "\n")
    kinds = {"length": LENGTHS, "depth": DEPTHS, "depth, over 100": DEPTHS}
    print(*(table(runs, key, edges) for key, edges in kinds.items()), sep="\n\n")


if __name__ == "__main__":
    with mistakes_told():
        main()
