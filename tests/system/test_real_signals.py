"""Real recordings and real print, from their archives to features."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from unrolled.data.readers.media.archives import Medium
from unrolled.data.readers.media.audio import audio_facts, read_audio
from unrolled.data.signals.line_images import read_line
from unrolled.data.signals.log_mel import LogMel
from unrolled.nn.ctc import find_infeasible

DATA = os.environ.get("UNROLLED_DATA")
pytestmark = pytest.mark.skipif(DATA is None, reason="UNROLLED_DATA is not set")


def test_spoken_digits_are_louder_than_their_ends() -> None:
    folder = Path(DATA or "") / "fsdd"
    for name in ("0_george_5", "7_jackson_9", "3_nicolas_11", "9_yweweler_20"):
        medium = Medium.named(f"recordings.zip/{name}.wav", folder)
        facts = audio_facts(medium)
        assert (facts.rate, facts.channels) == (8000, 1)
        frames = LogMel(8000, 40)(read_audio(medium, 8000))
        assert len(frames) == 1 + (facts.samples - 200) // 80
        level = frames.mean(axis=1)
        assert level.max() > level[-1] + 2


def test_lines_of_print_are_long_enough_for_their_transcripts() -> None:
    folder = Path(DATA or "") / "fraktur_ocr"
    rows = [line.split("\t") for line in (folder / "lines.tsv").read_text(encoding="utf-8").splitlines()[1::40]]
    steps = []
    for row in rows:
        columns, scale, _ = read_line(Medium.named(f"lines.zip/{row[0]}", folder), 48)
        assert columns.shape[1] == 48
        assert abs(len(columns) - int(row[2]) * scale) <= 1
        ink = columns.astype(float).sum(axis=0)
        assert abs((ink * np.arange(48)).sum() / ink.sum() - 23.5) < 3
        steps.append(-(-len(columns) // 4))
    assert find_infeasible([[ord(c) for c in row[4]] for row in rows], steps) == []
