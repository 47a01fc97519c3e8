"""Forced alignment: speed and memory beside torchaudio, and how far word boundaries are from true ones.

    UNROLLED_DATA=... python benchmarks/align.py [--model FOLDER] [--only speed,memory,boundaries] [--steps 600]

`speed`: one path through random posteriors (V 32), one thread, CPU time, the best of several; torchaudio's
`forced_align` where it is installed. Both must find the same path before they are timed; in 20,000 frames theirs adds
up float32 numbers and misses the best one, and ours must be better.

`memory`: the peak of a process that aligns an hour, 180,000 frames (50 a second) with 54,000 labels.

`boundaries`: numbers spoken digit by digit, joined from single recordings with gaps of noise (recipes/digits.py), so
that true boundaries are known: those of the recordings, whose own silences count as part of the word. A small
bidirectional model is trained on other recordings of the same speakers; `--model` keeps it. The error is the mean
distance of starts and ends from the true ones, in milliseconds, on 100 numbers of the held-out part and 200 of the
test part. torchaudio's path is that of prior 0.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from measure import load, machine, row, show, write
from numpy.typing import NDArray

import unrolled
from unrolled.kernels.ctc.alignment import align_native
from unrolled.nn import ctc_align

sys.path.insert(0, str(Path(__file__).parent.parent / "recipes"))
from digits import RATE, WORDS, drawn, gap, read

SIZES = ((500, 80), (3000, 600), (20_000, 4_000))
HOUR = (180_000, 54_000)
PRIORS = (0.0, 0.3, 0.5, 0.7, 1.0)
SETTINGS: dict[str, Any] = {
    "data.bands": 40,
    "model.hidden_size": 64,
    "model.num_layers": 1,
    "model.channels": [8],
    "train.batch_size": 16,
    "train.average": 0.99,
    "train.eval_every": 200,
}


def posteriors(frames: int, labels: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(frames, 32).log_softmax(-1), torch.randint(1, 32, (labels,))


def speed() -> list[dict[str, Any]]:
    """Milliseconds of CPU time of one alignment."""
    try:
        from torchaudio.functional import forced_align
    except (ImportError, OSError):
        forced_align = None
    rows = []
    for frames, labels in SIZES:
        x, target = posteriors(frames, labels)
        runs: dict[str, Any] = {"ours": lambda x=x, target=target: align_native(x.numpy(), target.tolist(), 0)}
        runs["ctc_align"] = lambda x=x, target=target: ctc_align(x, target)
        same: dict[str, Any] = {}
        if forced_align is not None:
            runs["torchaudio"] = lambda x=x, target=target: forced_align(x[None], target[None], blank=0)
            ours, (theirs, scores) = ctc_align(x, target), runs["torchaudio"]()
            gain = ours.log_prob - float(scores.double().sum())
            assert ours.path == theirs[0].tolist() if frames <= 3000 else gain > 0, "not the best path"
            same = {"same path": ours.path == theirs[0].tolist(), "gain in log-probability": gain}
        best = {name: min(_cpu(run) for _ in range(30 if frames < 1000 else 5)) for name, run in runs.items()}
        rows.append({"frames": frames, "labels": labels, **{f"{name} ms": ms for name, ms in best.items()}, **same})
    return rows


def _cpu(run: Any) -> float:
    start = time.process_time()
    run()
    return 1000 * (time.process_time() - start)


def hour() -> None:
    """Align an hour, and print its CPU time and the memory above that of the inputs."""
    frames, labels = HOUR
    x, target = posteriors(frames, labels)
    log_probs, wanted = x.numpy(), target.tolist()
    align_native(log_probs[:1000], wanted[:100], 0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    before, start = _peak(), time.process_time()
    align_native(log_probs, wanted, 0)
    print(time.process_time() - start, _peak() - before)


def _peak() -> float:
    """The most memory that the process held, in megabytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def memory() -> dict[str, float]:
    found = subprocess.run([sys.executable, __file__, "--hour"], capture_output=True, text=True, check=True)
    seconds, megabytes = map(float, found.stdout.split())
    frames, labels = HOUR
    return {
        "frames": frames,
        "labels": labels,
        "cpu_s": seconds,
        "mb": megabytes,
        "mb_of_all_moves": frames * labels / 1e6,
    }


class Said(NamedTuple):
    """A number spoken digit by digit, and the true start and end of each word in seconds."""

    samples: NDArray[np.float32]
    text: str
    times: list[tuple[float, float]]


def joined(count: int, indices: range, seed: int) -> list[Said]:
    """Numbers joined from recordings with these indices, of all speakers."""
    recordings = read(Path(os.environ["UNROLLED_DATA"]))
    speakers = sorted({speaker for speaker, _, _ in recordings})
    random, found = np.random.default_rng(seed), []
    for number in range(count):
        digits, speaker = drawn(random, by_rule=False), speakers[number % len(speakers)]
        pieces, times = [gap(random)], []
        for digit in digits:
            known = [i for i in indices if (speaker, digit, i) in recordings]
            sound = recordings[speaker, digit, int(random.choice(known))]
            start = sum(map(len, pieces))
            times.append((start / RATE, (start + len(sound)) / RATE))
            pieces += [sound, gap(random)]
        samples = np.concatenate(pieces).astype(np.float32) / np.float32(32768)
        found.append(Said(samples, " ".join(WORDS[digit] for digit in digits), times))
    return found


def train(folder: Path, steps: int) -> None:
    """Train the model that aligns."""
    import soundfile

    with TemporaryDirectory() as work:
        for name, indices, count in (("train", range(10, 50), 1500), ("valid", range(5, 10), 80)):
            rows = []
            for number, one in enumerate(joined(count, indices, seed=count)):
                soundfile.write(f"{work}/{name}{number}.wav", one.samples, RATE)
                rows.append(f"{name}{number}.wav\t{one.text}\n")
            Path(work, f"{name}.tsv").write_text("".join(rows))
        changes = SETTINGS | {"train.max_steps": steps}
        unrolled.train("recognize", train=f"{work}/train.tsv", valid=f"{work}/valid.tsv", out=folder, set=changes)


def boundaries(folder: Path, steps: int) -> dict[str, Any]:
    """Mean distances of word boundaries from the true ones, by prior."""
    if not (folder / "best.safetensors").exists():
        train(folder, steps)
    model = unrolled.load(folder)
    parts = {"held out": joined(100, range(5, 10), seed=3), "test": joined(200, range(5), seed=4)}
    table = {part: {str(prior): _errors(model, said, prior) for prior in PRIORS} for part, said in parts.items()}
    chosen = min(table["held out"], key=lambda prior: table["held out"][prior]["mean_ms"])
    return {"model": {"scores": model.scores, "steps": steps}, "errors": table, "chosen on held out": chosen}


def _errors(model: Any, examples: list[Said], prior: float) -> dict[str, float]:
    starts, ends = [], []
    for samples, text, times in examples:
        found = model.align(samples, text, prior=prior, rate=RATE)
        starts += [word.start - start for word, (start, _) in zip(found.words, times, strict=True)]
        ends += [word.end - end for word, (_, end) in zip(found.words, times, strict=True)]
    both = np.abs(np.array(starts + ends))
    return {
        "mean_ms": float(1000 * both.mean()),
        "starts_ms": float(1000 * np.abs(starts).mean()),
        "ends_ms": float(1000 * np.abs(ends).mean()),
        "within_100_ms": float((both <= 0.1).mean()),
        "words": len(starts),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="speed,memory,boundaries")
    options.add_argument("--model", type=Path, default=Path("build/align-digits"))
    options.add_argument("--steps", type=int, default=600)
    options.add_argument("--hour", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    torch.set_num_threads(1)
    if given.hour:
        hour()
        return
    wanted, details, table = given.only.split(","), dict[str, Any](), []
    if "speed" in wanted:
        details["speed"] = speed()
        for one in details["speed"]:
            if "torchaudio ms" in one:
                what = f"path of {one['labels']:,} labels in {one['frames']:,} frames, against torchaudio"
                table.append(row(what, one["torchaudio ms"] / one["ours ms"], "5×", note=f"{one['ours ms']:.3f} ms"))
    if "memory" in wanted:
        details["memory"] = memory()
        table.append(
            row("an hour: memory", f"{details['memory']['mb']:.0f} MB", note=f"{details['memory']['cpu_s']:.1f} s")
        )
    if "boundaries" in wanted:
        details["boundaries"] = found = boundaries(given.model, given.steps)
        best = found["chosen on held out"]
        for prior in ("0.0", best):
            table.append(
                row(f"boundaries of digits, prior {prior}", f"{found['errors']['test'][prior]['mean_ms']:.0f} ms")
            )
    show("forced alignment", table)
    write("align", machine() | {"load": load()}, table, [details])


if __name__ == "__main__":
    main()
