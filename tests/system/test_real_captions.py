"""Real pictures and captions: files are read as they are, and scores are those of the published code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from unrolled.data.readers.media.captions import read_captioned, read_captions
from unrolled.metrics.captions import cider_d

DATA = Path(os.environ.get("UNROLLED_DATA", ""))
pytestmark = pytest.mark.skipif("UNROLLED_DATA" not in os.environ, reason="UNROLLED_DATA is not set: no pictures here")


def test_flickr8k_is_read_from_its_zip() -> None:
    folder = DATA / "flickr8k"
    named = read_captions(folder / "captions.jsonl")
    assert len(named) == 7000
    assert {len(one.captions) for one in named} == {5}
    some = read_captioned(named[::100], folder / "images64.zip", folder / "captions.jsonl")
    assert {one.view.shape.sizes for one in some} == {(64, 64, 3)}
    deviations = [float(one.view.values.std()) for one in some if one.view.values is not None]
    assert np.median(deviations) > 30  # pictures, not blanks


def test_cider_of_the_first_caption_against_the_others_is_the_published_codes() -> None:
    cider = pytest.importorskip("pycocoevalcap.cider.cider", reason="pycocoevalcap is not installed")
    lines = (DATA / "flickr8k" / "captions.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines if '"split": "dev"' in line][:300]
    outputs = [row["captions"][0].lower() for row in rows]
    references = [[text.lower() for text in row["captions"][1:]] for row in rows]
    mean, _ = cider.Cider().compute_score(dict(enumerate(references)), {i: [text] for i, text in enumerate(outputs)})
    ours = cider_d([text.split() for text in outputs], [[text.split() for text in texts] for texts in references])
    assert np.mean(ours) == pytest.approx(mean, abs=1e-12)
    assert 0.5 < mean < 2.0  # people agree that much
