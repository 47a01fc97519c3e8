"""Feeds damaged files to the readers, and tells answers and refusals from faults.

    python -m tests.faults.fuzz --inputs 10000            all targets in turn
    python -m tests.faults.fuzz --target arpa --seed 7    one, with other damage
    python -m tests.faults.fuzz --replay FOLDER/arpa-1-35.arpa

An input is known by its target, the run's seed and its number: the same three give the same bytes.
"""

from __future__ import annotations

import contextlib
import os
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.faults.fuzz.mutate import mutated
from tests.faults.fuzz.targets import Target
from unrolled.errors import UserError

MOST_SECONDS, MOST_BYTES, LONGEST_MESSAGE = 5.0, 1 << 30, 5000


@dataclass(frozen=True)
class Outcome:
    """The outcome of one input: `fault` is empty for an answer or a refusal."""

    target: str
    number: int
    refused: bool
    seconds: float  # of the processor
    grown: int  # bytes of memory at the most, above what there was before
    fault: str = ""


def input_for(target: Target, seed: int, number: int) -> bytes:
    """Number 0 is the seed itself."""
    return target.seed if number == 0 else mutated(target.seed, target.kind, Random(f"{target.name} {seed} {number}"))


def fuzz(
    targets: Sequence[Target], seed: int, numbers: Sequence[int], folder: Path, *, measure: bool = True
) -> Iterator[Outcome]:
    """The numbered inputs of all targets, one of each after the other."""
    for number in numbers:
        for target in targets:
            yield tried(target, number, input_for(target, seed, number), folder, measure=measure)


def tried(target: Target, number: int, content: bytes, folder: Path, *, measure: bool = True) -> Outcome:
    """The outcome of one input; `measure` also checks its memory, which is slow under sanitizers."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"input{target.suffix}"
    path.write_bytes(content)
    fault, refused = "", False
    before, began = _memory(reset=True) if measure else 0, time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.run(path)
    except UserError as error:
        refused = True
        if len(str(error)) > LONGEST_MESSAGE:
            fault = f"A message of {len(str(error)):,} characters: {str(error)[:200]}"
    except Exception:
        fault = traceback.format_exc()
    seconds, grown = time.process_time() - began, max(0, _memory(peak=True) - before) if measure else 0
    if not fault and seconds > MOST_SECONDS:
        fault = f"It took {seconds:.1f} s."
    if not fault and grown > MOST_BYTES:
        fault = f"It took {grown / 2**30:.2f} GiB."
    return Outcome(target.name, number, refused, seconds, grown, fault)


def _memory(*, reset: bool = False, peak: bool = False) -> int:
    """Bytes of this process now or at its peak since the last reset; 0 where the system does not say."""
    with contextlib.suppress(OSError):
        if reset:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
        with open("/proc/self/status") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["VmHWM" if peak else "VmRSS"].split()[0]) * 1024
    return 0


def limit_memory(more: int = 6 << 30) -> None:
    """An allocation far beyond what any input may take fails at once instead of taking the machine with it."""
    import resource

    now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    resource.setrlimit(resource.RLIMIT_AS, (now + more, resource.RLIM_INFINITY))
