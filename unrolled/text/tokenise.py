"""A worker process on part of a large text: `python -m unrolled.text.tokenise`, with its job on standard input.

The job is JSON: what to make, path, begin and end in bytes, the file to write, and what `JOBS` say of each kind. Only
the tokenizers are imported, so that many workers start quickly.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from unrolled.errors import UserError
from unrolled.text.large import LargeText, marks_of
from unrolled.text.tokenizer import counts_of, tokenizer_from_json

Job = Mapping[str, Any]


def scan(text: LargeText, out: Path, job: Job) -> None:
    """The characters of the text, and where its segments begin."""
    out.write_text(json.dumps(marks_of(text)))


def counts(text: LargeText, out: Path, job: Job) -> None:
    """The count of each token of a `level`, after `lowercase`."""
    out.write_text(json.dumps(counts_of(job["level"], text.segments(), lowercase=job["lowercase"])))


def ids(text: LargeText, out: Path, job: Job) -> None:
    """The ids of the text by a stored `tokenizer`, as `dtype`."""
    tokenizer = tokenizer_from_json(job["tokenizer"])
    with out.open("wb") as file:
        for segment in text.segments():
            file.write(tokenizer.ids(segment).astype(job["dtype"]).tobytes())


JOBS: dict[str, Callable[[LargeText, Path, Job], None]] = {"scan": scan, "counts": counts, "ids": ids}


def do(job: Job) -> None:
    """Make what a job says."""
    JOBS[job["make"]](LargeText(Path(job["path"]), job["begin"], job["end"], ""), Path(job["out"]), job)


def main() -> None:
    """Do the job; a user's mistake is reported on standard error with exit code 2."""
    job = json.load(sys.stdin)
    try:
        do(job)
    except OSError as error:
        print(f"{job['out']} could not be written: {error.strerror}.", file=sys.stderr)
        sys.exit(2)
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
