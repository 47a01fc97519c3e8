"""Kills training runs with SIGKILL, resumes them until they end, and compares each with a run that was never killed.

    make kill N=1000

A parent that has imported everything forks a process for each start or resume of a run. Half of them are killed at a
random instant, half at a random one of their operations on the run folder (opening, renaming, removing, …), which
finds the short moments between two files. A run that was killed a few times ends undisturbed. Then every file in its
folder must be there with the same bytes: weights, metrics, updates, samples, curves, config, checkpoints.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tests.faults.test_resume import SETTINGS, TEXT
from tests.fitting import fitting
from tests.tasks import recognition, test_classify
from tests.tasks.caption import conftest as caption_examples
from tests.tasks.forecast import conftest as forecast_examples
from tests.tasks.tag import conftest as tag_examples
from tests.tasks.translate import conftest as translate_examples
from unrolled import api
from unrolled.training.folder import CONFIG, LOCK

SHORT: dict[str, Any] = {"train.max_steps": 12, "train.eval_every": 3, "train.threads": 1, "train.device": "cpu"}
EVENTS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "fcntl.flock")
MOST_KILLS = 12  # of one run


@dataclass(frozen=True)
class Case:
    """A small run: a task, the data it writes for itself, its settings."""

    task: str
    write: Callable[[Path], Path]
    settings: dict[str, Any]


def _text(name: str, text: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_text(text)
        return folder / name

    return write


CASES = {
    "generate": Case("generate", _text("sums.txt", TEXT), {**SETTINGS, "train.device": "cpu"}),
    "generate-transformer": Case(
        "generate",
        _text("sums.txt", TEXT),
        {
            "model.kind": "transformer",
            "model.hidden_size": 8,
            "model.dropout": 0.2,
            "model.context": 16,
            "train.k1": 10,
            **SHORT,
        },
    ),
    "classify": Case(
        "classify",
        lambda folder: test_classify.write(folder / "train.tsv", test_classify.sentences(60)),
        {**test_classify.SMALL, **SHORT},
    ),
    "tag": Case("tag", _text("chunks.txt", tag_examples.columns_text()), {**tag_examples.SMALL, **SHORT}),
    "translate": Case(
        "translate",
        _text("numbers.tsv", translate_examples.table(translate_examples.numbers())),
        {**translate_examples.SMALL, "model.decoder.dropout": 0.2, "train.teacher_forcing": "linear", **SHORT},
    ),
    "recognize": Case(
        "recognize",
        lambda folder: recognition.write_recordings(folder / "data", recognition.words(30)),
        fitting(
            "recognize", {**recognition.SMALL, "model.dropout": 0.2, "train.augment": True, **SHORT}, data__kind="audio"
        ),
    ),
    "caption": Case(
        "caption",
        lambda folder: caption_examples.write(folder / "scenes"),
        fitting(
            "caption",
            {**caption_examples.SMALL, "model.decoder.dropout": 0.2, "train.shift": 1, "train.valid_free": 2, **SHORT},
        ),
    ),
    "forecast": Case(
        "forecast",
        lambda folder: forecast_examples.table(folder / "waves.csv", forecast_examples.waves()),
        {
            **forecast_examples.SMALL,
            "model.dropout": 0.2,
            "train.teacher_forcing": "linear",
            "train.feedback": "steps",
            **SHORT,
        },
    ),
}


@dataclass
class Tally:
    """Counts of the runs of one case."""

    runs: int = 0
    kills: int = 0
    before_config: int = 0  # kills that left nothing to resume
    differ: int = 0
    faults: list[str] = field(default_factory=list)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run; the lock of a killed process is none of them."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != LOCK)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def in_a_process(work: Callable[[], object], delay: float | None = None, log: Path | None = None) -> int:
    """Runs `work` in a process of its own, killed after `delay` seconds; its exit code, or minus a signal's number."""
    process = os.fork()
    if process == 0:
        target = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(target, 1)
        os.dup2(target, 2)
        code = 1
        with suppress(BaseException):
            try:
                work()
                code = 0
            except BaseException:
                import traceback

                traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)
    if delay is not None:
        time.sleep(delay)
        os.kill(process, signal.SIGKILL)  # not waited for yet: it is this process and no other
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)


def watched(folder: Path, work: Callable[[], object], last: int | None = None, count: Path | None = None) -> Any:
    """`work`, which kills itself at its operation number `last` on files of the folder, or writes down their number."""
    done = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        if event == "fcntl.flock" or (event in EVENTS and str(arguments[0]).startswith(str(folder))):
            done += 1
            if done == last:
                os.kill(os.getpid(), signal.SIGKILL)

    def hooked() -> None:
        sys.addaudithook(hook)
        work()
        if count is not None:
            count.write_text(json.dumps({"operations": done, "modules": sorted(sys.modules)}))

    return hooked


class Campaign:
    """One case with its data, the run that is never killed, and runs that are."""

    def __init__(self, name: str, work: Path, chance: random.Random) -> None:
        self.case, self.work, self.chance = CASES[name], work / name, chance
        self.tally = Tally()
        self.work.mkdir()
        self.data = self.case.write(self.work)
        self.settings = dict(self.case.settings)
        if self.case.task == "caption":
            self.settings["data.images"] = str(self.data.parent / "images")
        whole, log, count = self.work / "whole", self.work / "log.txt", self.work / "count.json"
        if in_a_process(watched(whole, self.step(whole), count=count), log=log):
            raise RuntimeError(log.read_text())
        found = json.loads(count.read_text())
        for module in found["modules"]:  # once here, not again in every process
            with suppress(Exception):
                importlib.import_module(module)
        self.operations, began = found["operations"], time.monotonic()
        if in_a_process(self.step(self.work / "again"), log=log):
            raise RuntimeError(log.read_text())
        self.seconds = time.monotonic() - began
        self.expected = contents(whole)
        assert contents(self.work / "again") == self.expected, "two undisturbed runs differ"

    def step(self, folder: Path) -> Callable[[], object]:
        if (folder / CONFIG).exists():
            return lambda: api.resume(folder, quiet=True)
        return lambda: api.train(self.case.task, train=self.data, out=folder, set=self.settings, quiet=True)

    def run(self, folder: Path, kills: int = 0) -> None:
        """One run, killed up to so many times."""
        log = self.work / "log.txt"
        for _ in range(kills):
            work, delay = self.step(folder), None
            share = self.chance.choice([0.3, 1.0])  # of a whole run: early, or anywhere
            if self.chance.random() < 0.5:
                delay = self.chance.uniform(0, share * self.seconds)
            else:
                work = watched(folder, work, last=self.chance.randint(1, round(share * self.operations)))
            code = in_a_process(work, delay, log)
            if code == -signal.SIGKILL:
                self.tally.kills += 1
                self.tally.before_config += not (folder / CONFIG).exists()
            elif code == 0:
                break
            else:
                self.tally.faults.append(log.read_text()[-2000:])
        if in_a_process(self.step(folder), None, log):
            self.tally.faults.append(log.read_text()[-2000:])

    def killed_run(self, kills: int) -> None:
        folder = self.work / "killed"
        before = len(self.tally.faults)
        self.run(folder, kills)
        found = contents(folder) if folder.exists() else {}
        other = sorted(name for name in found.keys() | self.expected if found.get(name) != self.expected.get(name))
        self.tally.runs += 1
        if other:
            self.tally.differ += 1
            self.tally.faults.append(f"differs: {', '.join(other)}")
        if len(self.tally.faults) > before:
            kept = self.work / f"fault-{self.tally.runs}"
            folder.rename(kept)
            print(f"{kept}: {self.tally.faults[-1]}", flush=True)
        else:
            shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=100, help="SIGKILLs in all")
    parser.add_argument("--cases", default=",".join(CASES), help="which, with commas between")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    work = Path(tempfile.mkdtemp(prefix="unrolled-kill-"))
    print(f"seed {options.seed}, work in {work}", flush=True)
    chance, began = random.Random(options.seed), time.monotonic()
    campaigns = {name: Campaign(name, work, chance) for name in options.cases.split(",")}
    while (kills := sum(one.tally.kills for one in campaigns.values())) < options.kills:
        least = min(campaigns.values(), key=lambda one: one.tally.kills)
        least.killed_run(min(chance.randint(1, MOST_KILLS), options.kills - kills))
        if options.out:
            _write(options.out, campaigns, options.seed, time.monotonic() - began)
    faults = [fault for one in campaigns.values() for fault in one.tally.faults]
    runs = sum(one.tally.runs for one in campaigns.values())
    print(f"{kills} kills of {runs} runs, {len(faults)} faults, {time.monotonic() - began:.0f} s")
    if not faults:
        shutil.rmtree(work)
    return 1 if faults else 0


def _write(path: Path, campaigns: dict[str, Campaign], seed: int, seconds: float) -> None:
    cases = {name: vars(one.tally) for name, one in campaigns.items()}
    sums = {key: sum(one[key] for one in cases.values()) for key in ("kills", "runs", "before_config", "differ")}
    about = {
        "what": "SIGKILLs at random instants and operations; runs whose files then differ from an undisturbed run's",
        "seed": seed,
        "seconds": round(seconds),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps({**about, **sums, "cases": cases}, indent=1) + "\n")
    new.rename(path)


if __name__ == "__main__":
    sys.exit(main())
