"""A worker process that tokenises part of a file: `python -m unrolled.text.tokenise`, with its job on standard input.

The job is JSON: path, begin and end in bytes, the stored tokenizer, the type of the ids, the file to write.
Only the tokenizers are imported, so that many workers start quickly.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from unrolled.errors import UserError
from unrolled.text.large import LargeText
from unrolled.text.tokenizer import tokenizer_from_json


def main() -> None:
    """Write the ids; a user's mistake is reported on standard error with exit code 2."""
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
