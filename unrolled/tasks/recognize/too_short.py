"""Examples whose transcripts have more labels than the network has frames for them: found, named and listed."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from unrolled.data.batching.feature_cache import FeatureCache
from unrolled.data.readers.media.archives import Medium
from unrolled.data.readers.media.transcripts import Transcribed
from unrolled.errors import note
from unrolled.models.recognizer import strides_of
from unrolled.nn.ctc import find_infeasible
from unrolled.tasks.recognize.config import RecognizeConfig
from unrolled.tasks.recognize.labels import RecognizeAssets
from unrolled.training.checkpoint import write_atomically

MOST_NAMED = 10  # examples in a message


class TooShort(NamedTuple):
    """An example that is too short for its transcript."""

    number: int  # of the example
    file: str
    frames: int  # that the network puts out
    needed: int  # for the transcript: one for each label, and one more between two equal ones
    place: str  # of the example in the data

    def __str__(self) -> str:
        where = f"{self.place} ({self.file})" if self.file else self.place
        return f"{where}: {self.frames} frames, {self.needed} needed"


def too_short(
    config: RecognizeConfig,
    assets: RecognizeAssets,
    examples: Sequence[Transcribed],
    store: FeatureCache,
    targets: Sequence[Sequence[int]],
) -> list[TooShort]:
    """The examples that CTC cannot align with their transcripts."""
    factor = math.prod(strides_of(config.model, assets.reader.kind))
    return [
        TooShort(
            one.sample,
            given.name if isinstance(given := examples[one.sample].input, Medium) else "",
            one.frames,
            one.needed,
            examples[one.sample].place,
        )
        for one in find_infeasible(targets, [-(-int(steps) // factor) for steps in store.lengths])
    ]


def tell(found: Sequence[TooShort], what: str, then: str) -> None:
    """A note that names the examples, the first ten of many."""
    if not found:
        return
    lines = [f"  {one}" for one in found[:MOST_NAMED]]
    if len(found) > MOST_NAMED:
        lines.append(
            f"  … and {len(found) - MOST_NAMED:,} more. --too-short FILE.tsv lists all of the training examples."
        )
    several = len(found) != 1
    note(
        f"{len(found):,} {what} {'examples are' if several else 'example is'} too short for "
        f"{'their transcripts' if several else 'its transcript'}{then}:\n" + "\n".join(lines)
    )


def write_list(path: str, found: Sequence[TooShort]) -> None:
    """Write all of them to a .tsv file: file, frames, needed, place."""
    text = io.StringIO()
    rows = csv.writer(text, delimiter="\t", lineterminator="\n")
    rows.writerow(["file", "frames", "needed", "place"])
    rows.writerows([one.file, one.frames, one.needed, one.place] for one in found)
    write_atomically(Path(path), text.getvalue())
