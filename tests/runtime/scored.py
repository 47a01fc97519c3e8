"""Scores of models on files, in a process without torch: python -m tests.runtime.scored REQUESTS > scores.json

REQUESTS is JSON: for each name the model's folder, its data and the options.
"""

from __future__ import annotations

import json
import sys

if __name__ == "__main__":
    sys.modules["torch"] = None  # type: ignore[assignment]  # importing it is an error from now on
    from unrolled import runtime

    scores = {}
    for name, (folder, data, options) in json.loads(sys.argv[1]).items():
        scores[name] = runtime.load(folder).evaluate(data, **options)
    print(json.dumps(scores))
