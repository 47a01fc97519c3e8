"""Multi-dimensional LSTMs on lines of Fraktur print, beside the bidirectional LSTM: character error rates.

    python recipes/planes.py --data FOLDER [--only recurrent,diagonal] [--seeds 0] [--out FOLDER]

`recurrent` is the usual encoder of `recognize`: each column of the maps is one vector. `diagonal` is the
multi-dimensional LSTM of Graves & Schmidhuber (2009), `parallel` its form of Stollenga et al. (2015). All three read
the same maps of two small convolutions, have one layer and 105,000 to 126,000 weights, and make the same 400 updates on
every third training line (1,242 lines, 24 pixels high). `recurrent-long` has the time of a multi-dimensional network
instead: ten times as many updates. The scores are those of all 424 test lines, by the best path.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common import Files, Part, main
from fraktur import lines

DATA = ("fraktur_ocr/lines.tsv", "fraktur_ocr/lines.zip")
EVERY = 3
SETTINGS: dict[str, Any] = {
    "data.height": 24,
    "model.channels": [8, 32],
    "model.num_layers": 1,
    "model.dropout": 0.1,
    "train.batch_size": 8,
    "train.lr": 4e-3,
    "train.max_steps": 400,
}
ENCODERS: Mapping[str, dict[str, Any]] = {
    "recurrent": {"model.hidden_size": 48},
    "recurrent-long": {"model.hidden_size": 48, "train.max_steps": 4000},
    "diagonal": {"model.kind": "mdlstm", "model.hidden_size": 44},
    "parallel": {"model.kind": "mdlstm", "model.form": "parallel", "model.hidden_size": 34},
}
ABOUT = {
    "recurrent": "bidirectional LSTM over the columns",
    "recurrent-long": "the same, ten times as many updates",
    "diagonal": "multi-dimensional LSTM from the four corners",
    "parallel": "multi-dimensional LSTM from the four sides",
}


def some_lines(data: Path, work: Path) -> Files:
    """Every third training line, all test lines."""
    train, test = lines("test")(data, work)
    rows = [line for file in (train, work / "dev.tsv") for line in file.read_text("utf-8").splitlines(keepends=True)]
    fewer = work / "fewer.tsv"
    fewer.write_text("".join(rows[::EVERY]), encoding="utf-8")
    return fewer, test


PARTS = {
    name: Part(ABOUT[name], "recognize", some_lines, {"cer": None}, settings={**SETTINGS, **changes})
    for name, changes in ENCODERS.items()
}

if __name__ == "__main__":
    main("planes", __doc__, PARTS, seeds="0")
