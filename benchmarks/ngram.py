"""n-gram models: reading ARPA files, training a 3-gram on ten million words, scoring; beside KenLM if it is installed.

KenLM's reader is the Python package `kenlm`, its trainer the program `lmplz` on the path. Every part runs in a process
of its own, to measure its own peak memory.

The text is the Penn Treebank's training part twelve times over. In each copy after the first, every word except the 200
most frequent changes with probability ½ to one of its 20 variants ("company" to "company~7"), so that vocabulary and
distinct n-grams keep growing as in real text.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import RESULTS, machine

WORDS = 10_000_000
MEMORY = ("64M", "1G")


def make_text(source: Path, out: Path, words: int = WORDS) -> dict[str, int]:
    """Write the text described above; return its numbers of words and of distinct words."""
    random.seed(1)
    lines = [line.split() for line in source.read_text().replace("<unk>", "UNK").splitlines()]
    frequent = {word for word, _ in Counter(w for line in lines for w in line).most_common(200)}
    written, types, copy = 0, set(), 0
    with out.open("w") as file:
        while written < words:
            for line in lines:
                new = line
                if copy:
                    new = [
                        f"{w}~{random.randrange(20)}" if w not in frequent and random.random() < 0.5 else w
                        for w in line
                    ]
                file.write(" ".join(new) + "\n")
                types.update(new)
                written += len(new)
            copy += 1
    return {"words": written, "types": len(types)}


def peak_mib() -> float:
    """Peak memory of this process. getrusage would start at the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def measured(job: Callable[[], Any]) -> dict[str, float]:
    """Wall-clock and processor seconds of a job, and the rise of the memory peak in MiB."""
    before, start, work = peak_mib(), time.perf_counter(), time.process_time()
    kept = job()
    seconds, work = time.perf_counter() - start, time.process_time() - work
    found = {"seconds": round(seconds, 3), "cpu_seconds": round(work, 3), "memory_mib": round(peak_mib() - before)}
    del kept
    return found


def apart(name: str, *arguments: str | Path) -> dict[str, Any]:
    """Run one of the jobs below in a process of its own."""
    command = [sys.executable, __file__, "--job", name, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    print(f"{name:<14} {Path(arguments[0]).name:<14} {' '.join(map(str, arguments[2:])):<6} {found}", flush=True)
    return found


def load(path: str) -> dict[str, Any]:
    from unrolled.search import NGram

    return measured(lambda: NGram.load(path))


def load_kenlm(path: str) -> dict[str, Any]:
    import kenlm

    return measured(lambda: kenlm.Model(path))


def train(text: str, out: str, memory: str) -> dict[str, Any]:
    from unrolled.search import NGram

    return measured(lambda: NGram.train_to(out, text, order=3, memory=memory, scratch=Path(out).parent))


def score(path: str, text: str) -> dict[str, Any]:
    from unrolled.search import NGram

    model = NGram.load(path)
    lines = Path(text).read_text().splitlines()
    scores = model.evaluate(lines)
    seconds = min(measured(lambda: model.evaluate(text))["cpu_seconds"] for _ in range(5))
    count = scores["words"] + scores["sentences"]
    return {"log_prob": scores["log_prob"], "million_words_per_second": round(count / seconds / 1e6, 2)}


def score_kenlm(path: str, text: str) -> dict[str, Any]:
    import kenlm

    model = kenlm.Model(path)
    lines = Path(text).read_text().splitlines()

    def all_of_it() -> float:
        return float(sum(model.score(line) for line in lines))

    seconds = min(measured(all_of_it)["cpu_seconds"] for _ in range(5))
    count = sum(len(line.split()) + 1 for line in lines)
    return {"log_prob": all_of_it() * math.log(10), "million_words_per_second": round(count / seconds / 1e6, 2)}


def train_lmplz(text: Path, out: Path, memory: str) -> dict[str, Any]:
    """Run KenLM's trainer with the same memory. A small process starts it, so that the peak is not this one's."""
    command = ["lmplz", "-o", "3", "-S", memory, "-T", str(out.parent), "--text", str(text), "--arpa", str(out)]
    code = (
        "import subprocess, resource, sys, time; t = time.perf_counter();"
        "subprocess.run(sys.argv[1:], stderr=subprocess.DEVNULL, check=True);"
        "u = resource.getrusage(resource.RUSAGE_CHILDREN);"
        "print(time.perf_counter() - t, u.ru_utime + u.ru_stime, u.ru_maxrss / 1024)"
    )
    result = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=True)
    seconds, work, peak = map(float, result.stdout.split())
    found = {"seconds": round(seconds, 3), "cpu_seconds": round(work, 3), "memory_mib": round(peak)}
    print(f"{'lmplz':<14} {text.name:<14} {memory:<6} {found}", flush=True)
    return found


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "load": load,
    "load-kenlm": load_kenlm,
    "train": train,
    "score": score,
    "score-kenlm": score_kenlm,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("UNROLLED_DATA"), help="or UNROLLED_DATA")
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--scratch", type=Path, help="a folder with a few GB of room")
    parser.add_argument("--job", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        name, *arguments = options.job
        print(json.dumps(JOBS[name](*arguments)))
        return
    if options.data is None:
        raise SystemExit("Set UNROLLED_DATA, or give --data: ptb and ctc_decoding are read from there.")
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        found = run(Path(options.data), Path(folder), options.words)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "ngram.json").write_text(json.dumps(found, indent=2) + "\n")


def run(data: Path, folder: Path, words: int) -> dict[str, Any]:
    try:
        import kenlm

        peer = bool(kenlm)
    except ImportError:
        peer = False
    unpacked, text, test = folder / "200k.arpa", folder / "text.txt", data / "ptb" / "ptb.test.txt"
    unpacked.write_bytes(gzip.decompress((data / "ctc_decoding" / "lm.arpa.gz").read_bytes()))
    found: dict[str, Any] = {"machine": machine(), "text": make_text(data / "ptb" / "ptb.train.txt", text, words)}
    print(found["text"], flush=True)

    found["training"] = {}
    for memory in MEMORY:
        found["training"][f"unrolled, {memory}"] = apart("train", text, folder / f"{memory}.arpa", memory)
    assert (folder / "64M.arpa").read_bytes() == (folder / "1G.arpa").read_bytes(), "memory changed the result"
    if shutil.which("lmplz"):
        for memory in MEMORY:
            found["training"][f"lmplz, {memory}"] = train_lmplz(text, folder / "lmplz.arpa", memory)
    model = folder / "1G.arpa"
    with model.open() as file:
        found["trained"] = [next(file).strip() for _ in range(4)][1:]

    found["loading"], found["scoring"] = {}, {}
    for name, path in (("200k unigrams", unpacked), ("the 3-gram trained", model)):
        found["loading"][f"unrolled, {name}"] = apart("load", path)
        if peer:
            found["loading"][f"kenlm, {name}"] = apart("load-kenlm", path)
    found["scoring"]["unrolled"] = apart("score", model, test)
    if peer:
        found["scoring"]["kenlm"] = apart("score-kenlm", model, test)
        ours, theirs = (found["scoring"][who]["log_prob"] for who in ("unrolled", "kenlm"))
        assert abs(ours - theirs) < 1e-5 * abs(theirs), f"scores differ: {ours} and {theirs}"
    return found


if __name__ == "__main__":
    main()
