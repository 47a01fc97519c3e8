"""Large texts by several processes and threads: the cache of ids, and n-gram counts.

    python benchmarks/text_parts.py [--megabytes 256] [--words FILE] [--workers 2]

The cache of a text of `--megabytes` (the built-in one, with numbers) is made by one process and by `--workers`; a
3-gram model of `--words`, by default of the Penn Treebank in UNROLLED_DATA, by one thread and by as many. Both must be
the same bytes. Wall seconds stand beside CPU seconds: those of the thread that waits for the others, and those of all
others. What the way through would take on idle cores is the first and, where it waits, a share of the second: `path`.
On a machine that others use, only the ratio of the paths says something.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from large_text import make
from measure import machine

from unrolled.data.batching.token_cache import TokenCache
from unrolled.search.ngram.estimate import discounts_of
from unrolled.search.ngram.training import check_means, counted


def spent(work: Callable[[], object], processes: int | None = None) -> dict[str, float]:
    """Seconds of some work: wall, CPU of this thread, CPU of others, and the way through.

    This thread waits for `processes`; without them, other threads work beside it.
    """
    wall, own, every, before = time.perf_counter(), time.thread_time(), time.process_time(), os.times()
    work()
    after = os.times()
    children = after.children_user + after.children_system - before.children_user - before.children_system
    own = time.thread_time() - own
    others = time.process_time() - every - own + children
    wall = time.perf_counter() - wall
    return {"wall": wall, "own": own, "others": others, "path": own + (others / processes if processes else 0)}


def digest(folder: Path) -> str:
    """Of the ids and vocabularies of a cache."""
    files = sorted(
        path for path in folder.rglob("*") if path.suffix in (".json", ".bin") and "sources" not in str(path)
    )
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def cached(path: Path, folder: Path, level: str, workers: int) -> dict[str, Any]:
    """The three steps of a cache."""
    cache, found = TokenCache(folder, workers), dict[str, Any]()
    found["scan"] = spent(lambda: cache.text(path), workers)
    text, _ = cache.text(path)
    found["vocabulary"] = spent(lambda: cache.trained(text, level, max_size=8000), workers)
    tokenizer = cache.trained(text, level, max_size=8000)
    found["ids"] = spent(lambda: cache.ids(text, tokenizer), workers)
    return found


def grams(path: Path, out: Path, workers: int) -> dict[str, Any]:
    """The steps of training on a text."""
    means, trainers = check_means("1G", None, workers), list[Any]()
    found = {"count": spent(lambda: trainers.append(counted(path, 3, [0, 0, 0], means)))}
    trainer, counts = trainers[0], list[Any]()
    found["adjust"] = spent(lambda: counts.append(trainer.adjust()))
    amounts = [list(one) for one in discounts_of(counts[0], trainer.longest)]
    found["estimate"] = spent(lambda: trainer.estimate(amounts))

    def write() -> None:
        with out.open("wb") as file:
            while piece := trainer.next():
                file.write(piece)

    found["write"] = spent(write)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--words", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "text_parts.json")
    asked = parser.parse_args()
    found: dict[str, Any] = {"machine": machine(), "command": " ".join(Path(word).name if "/" in word else word for word in sys.argv), "load": os.getloadavg()[0]}
    ways = (1, asked.workers)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder / "text.txt", asked.megabytes)
        for level in ("char", "word"):
            rows = {way: cached(folder / "text.txt", folder / f"{level}-{way}", level, way) for way in ways}
            if len({digest(folder / f"{level}-{way}") for way in ways}) > 1:
                raise SystemExit("the caches differ: nothing is reported")
            found[f"cache of {asked.megabytes} MB, {level}"] = compared(rows)
        if asked.words or "UNROLLED_DATA" in os.environ:
            words = asked.words or Path(os.environ["UNROLLED_DATA"]) / "ptb" / "ptb.train.txt"
            models = {way: grams(words, folder / f"{way}.arpa", way) for way in ways}
            if len({(folder / f"{way}.arpa").read_bytes() for way in ways}) > 1:
                raise SystemExit("the models differ: nothing is reported")
            found[f"3-grams of {words.name}, {words.stat().st_size / 1e6:.1f} MB"] = compared(models)
    print(json.dumps(found, indent=1))
    asked.json.write_text(json.dumps(found, indent=1) + "\n")


def compared(rows: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """The steps of both ways, and how much shorter the way through is."""
    one, several = rows.values()
    paths = [sum(step["path"] for step in way.values()) for way in (one, several)]
    walls = [sum(step["wall"] for step in way.values()) for way in (one, several)]
    each = {step: one[step]["path"] / several[step]["path"] for step in one}
    return {
        "steps by workers": {str(way): steps for way, steps in rows.items()},
        "path of one over several": {**each, "all": paths[0] / paths[1]},
        "wall of one over several": walls[0] / walls[1],
    }


if __name__ == "__main__":
    main()
