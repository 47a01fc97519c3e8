"""Stores a small model of every kind with its answers: python -m tests.compat.make tests/compat/NAME

Run it before a change of the file format or the networks, never after: the stored files hold every later version to the
answers of the one that wrote them.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from tests.compat.answers import STORED, answer
from tests.fitting import fitting
from tests.see.models import facts_of, write_files
from unrolled import api

INPUTS = {
    "sounds/train0.wav": "sound.wav",
    "lines/train0.png": "line.png",
    "pictures/0.png": "picture.png",
    "waves.csv": "waves.csv",
}


def make(out: Path) -> None:
    out.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        write_files(data)
        for source, name in INPUTS.items():
            shutil.copy(data / source, out / name)
        said = {}
        for kind, (task, file, keys) in STORED.items():
            longer = fitting(task, {**keys, "train.max_steps": 300}, **facts_of(file))
            api.train(task, train=data / file, out=data / "runs" / kind, set=longer, quiet=True)
            shutil.copy(data / "runs" / kind / "best.safetensors", out / f"{kind}.safetensors")
            said[kind] = answer(api.load(out / f"{kind}.safetensors"), kind, out)
    (out / "answers.json").write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
