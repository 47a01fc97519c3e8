"""Stores a small model of every kind with its answers: python -m tests.compat.make tests/compat/NAME [KIND …]

With names of kinds only these are stored: those that no set has yet. Run it before a change of the file format or the
networks, never after: the stored files hold every later version to the answers of the one that wrote them.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.compat.answers import LATER, STORED, answer
from tests.fitting import fitting
from tests.see.models import facts_of, write_files
from unrolled import api

INPUTS = {
    "sounds/train0.wav": "sound.wav",
    "lines/train0.png": "line.png",
    "pictures/0.png": "picture.png",
    "waves.csv": "waves.csv",
}


def write_more(folder: Path) -> None:
    """Write the training files that only stored models need: frames as arrays and as a table, and categories."""
    steps = [(f"walk{i // 30}", i % 7, i % 5 - 2.5, "up" if i % 7 > 3 else "down") for i in range(240)]
    frames, labels = np.array([step[1:3] for step in steps]), np.array([step[3] for step in steps])
    np.savez(folder / "steps.npz", frames=frames, labels=labels, lengths=np.full(8, 30))
    rows = ["session,x,y,label", *(",".join(map(str, step)) for step in steps)]
    (folder / "steps.csv").write_text("\n".join(rows))
    days = [("mon", "tue", "wed")[i * i % 3] for i in range(120)]
    sales = [f"{day},{15 + i % 11},{5 - 4 * (day == 'tue') + 0.1 * (i % 11):.2f}" for i, day in enumerate(days)]
    (folder / "shop.csv").write_text("\n".join(["day,temp,sales", *sales]))


def make(out: Path, kinds: Sequence[str] = ()) -> None:
    out.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        write_files(data)
        write_more(data)
        for source, name in INPUTS.items():
            shutil.copy(data / source, out / name)
        said = {}
        every = {**STORED, **LATER}
        for kind in kinds or every:
            task, file, keys = every[kind]
            facts = {"inputs": "frames"} if file.startswith("steps") else facts_of(file)
            longer = fitting(task, {**keys, "train.max_steps": 300}, **facts)
            api.train(task, train=data / file, out=data / "runs" / kind, set=longer, quiet=True)
            shutil.copy(data / "runs" / kind / "best.safetensors", out / f"{kind}.safetensors")
            said[kind] = answer(api.load(out / f"{kind}.safetensors"), kind, out)
    (out / "answers.json").write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2:])
