"""Feed damaged files to the C++ readers, on an extension from a build folder: see sanitize.sh.

Usage: sanitized_fuzz.py BUILD INPUTS [SEED]. A sanitizer's finding ends the process with its report.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from sanitized import use_extension

READERS = ("arpa", "decode-", "lm-", "model-classify", "prompt-classify")


def main() -> int:
    use_extension(sys.argv[1])  # before anything imports the installed one
    from tests.faults.fuzz.harness import fuzz
    from tests.faults.fuzz.targets import make_targets

    inputs, seed = int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1
    began, refused, faults = time.perf_counter(), 0, 0
    with tempfile.TemporaryDirectory(prefix="fuzz-") as work:
        targets = [t for name, t in make_targets(Path(work) / "seeds").items() if name.startswith(READERS)]
        numbers = range(-(-inputs // len(targets)))
        for outcome in fuzz(targets, seed, numbers, Path(work) / "input", measure=False):
            refused += outcome.refused
            slow = outcome.fault.startswith("It took")  # sanitizers slow everything down
            faults += bool(outcome.fault) and not slow
            if outcome.fault and not slow:
                print(f"{outcome.target} {outcome.number}: {outcome.fault}")
    tried, seconds = len(numbers) * len(targets), time.perf_counter() - began
    print(f"{tried:,} damaged inputs in {seconds:.0f} s: {refused:,} refused, {faults} faults, no report")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
