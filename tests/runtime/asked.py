"""Requests to models of every kind, and their answers in a process without torch:

python -m tests.runtime.asked FOLDER_OF_INPUTS KIND=FOLDER … > answers.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

WORDS = ["3", "and", "4", "make", "7", "five", "three", "seven", "one", "two"]


def requests_for(kind: str, inputs: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Requests and options; `inputs` is the folder of recordings, pictures and tables."""
    task = kind.split("-")[0]
    texts: dict[str, Any] = {"texts": ["3 5 7", "1 2", "9"], "format": "jsonl"}
    if task == "classify":
        return [({"texts": ["one fine two three", "", "dull"], "format": "jsonl"}, {})]
    if task == "tag":
        sentence = {"texts": ["Ada met Grace Hopper in New York .", "Ada"]}
        return [({**sentence, "format": "jsonl"}, {}), (sentence, {})]
    if task == "generate":
        prompts = {"texts": ["3 and", "1"], "format": "jsonl"}
        drawn = {"max_tokens": 30, "temperature": 0.8, "seed": 3, "top_p": 0.9, "repetition_penalty": 1.1}
        long = ({"texts": ["3 and 4 make 7"]}, {"max_tokens": 60, "seed": 1, "top_k": 5})
        return [(prompts, drawn), long, (prompts, {"beam": 3, "max_tokens": 20})]
    if task == "translate":
        drawn = {"temperature": 0.7, "seed": 5, "n_best": 2}
        words = {"lexicon": WORDS, "unknown_penalty": -1.0, "skip_unspellable": True, "beam": 4}
        return [(texts, {"beam": 4, "n_best": 3}), (texts, drawn), (texts, words), (texts, {"no_repeat_ngram": 1})]
    if task == "caption":
        picture = {"files": [f"{inputs}/picture.png"], "format": "jsonl"}
        return [(picture, {"beam": 3, "n_best": 2}), (picture, {"coverage": 0.5})]
    if task == "forecast":
        rows: dict[str, Any] = {"files": [f"{inputs}/waves.csv"]}
        return [({**rows, "format": "csv"}, {}), (rows, {"steps": 6})]
    heard = {"files": [f"{inputs}/{'sound.wav' if kind == 'recognize' else 'line.png'}"], "format": "jsonl"}
    return [(heard, {}), (heard, {"beam": 8, "n_best": 3}), (heard, {"lexicon": ["a", "ab", "ba", "b"]})]


def answers(model: Any, kind: str, inputs: str) -> list[str]:
    """The output of `unrolled run` for each request."""
    from unrolled.tasks.runner import Request

    asked = requests_for(kind, inputs)
    return ["".join(model.runner.run(Request(**request), **options)) for request, options in asked]


if __name__ == "__main__":
    sys.modules["torch"] = None  # type: ignore[assignment]  # importing it is an error from now on
    from unrolled import runtime

    place, *folders = sys.argv[1:]
    pairs = [one.split("=", 1) for one in folders]
    print(json.dumps({kind: answers(runtime.load(folder), kind, place) for kind, folder in pairs}))
