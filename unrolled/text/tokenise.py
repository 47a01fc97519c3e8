"""A process of its own that turns part of a file into ids: `python -m unrolled.text.tokenise`, a job on its input.

The job is JSON: path, begin and end in bytes, the tokenizer as it is stored, the type of the ids, the file to write.
Nothing but tokenizers is loaded, so that many can run side by side.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from unrolled.errors import UserError
from unrolled.text.large import LargeText
from unrolled.text.tokenizer import tokenizer_from_json


def main() -> None:
    """Writes the ids; a mistake of the user's is told on standard error, with exit code 2."""
    job = json.load(sys.stdin)
    tokenizer = tokenizer_from_json(job["tokenizer"])
    try:
        with Path(job["out"]).open("wb") as file:
            for segment in LargeText(Path(job["path"]), job["begin"], job["end"], "").segments():
                file.write(tokenizer.ids(segment).astype(job["dtype"]).tobytes())
    except OSError as error:
        print(f"{job['out']} could not be written: {error.strerror}.", file=sys.stderr)
        sys.exit(2)
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
