"""Speed of a classifier of default size: short sentences per second, from texts to labels.

    python benchmarks/classify.py [--sentences 5000] [--rounds 5]

The sentences are those of the built-in data (about nine words each). Before timing, batched answers must equal single
ones.
"""

from __future__ import annotations

import argparse
import tempfile
import time

from measure import machine, row, show, write

from unrolled import Model, api
from unrolled.data.demo.docstrings import embedded_labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    texts = [text for _, text in embedded_labels()]
    texts = (texts * (1 + options.sentences // len(texts)))[: options.sentences]
    with tempfile.TemporaryDirectory() as folder:
        model = api.train("classify", out=f"{folder}/run", set={"train.max_steps": 10}, quiet=True)
    few = texts[:: len(texts) // 50]
    if [model.predict(text).label for text in few] != [answer.label for answer in model.predict(few)]:
        raise SystemExit("batched answers differ from single ones")
    best = min(_seconds(model, texts) for _ in range(options.rounds))
    words = sum(len(text.split()) for text in texts) / len(texts)
    facts = machine()
    rows = [row("sentences/s", f"{len(texts) / best:,.0f}", "5,000", "", f"{words:.1f} words each")]
    print(facts)
    show("classify, inference", rows)
    write("classify", facts, rows, [{"sentences": len(texts), "seconds": best}])


def _seconds(model: Model, texts: list[str]) -> float:
    begun = time.perf_counter()
    model.predict(texts)
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
