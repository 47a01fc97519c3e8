"""A process of a sweep: python -m unrolled.sweeps, with its job as JSON on stdin.

The message of a user's mistake goes to stdout, as JSON, to the process that wrote the job.
"""

from __future__ import annotations

import json
import sys

from unrolled.errors import UserError


def main() -> None:
    """Run the job. Torch is imported inside, where Ctrl-C is no traceback."""
    try:
        job = json.loads(sys.stdin.read())
        from unrolled.sweeps.worker import run_job

        run_job(job)
    except UserError as error:
        print(json.dumps([error.problem, error.fix]))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
