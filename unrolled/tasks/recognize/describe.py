"""Facts about transcribed recordings and pictures of lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unrolled.data.readers.media.archives import Medium
from unrolled.data.readers.media.transcripts import Transcribed
from unrolled.hub import Usage
from unrolled.model import Model
from unrolled.tasks.contract import Data, Description
from unrolled.tasks.recognize.batches import feature_store
from unrolled.tasks.recognize.config import RecognizeConfig
from unrolled.tasks.recognize.labels import RecognizeAssets
from unrolled.tasks.recognize.too_short import too_short

KINDS = {  # of inputs: in words, the hub's name of the task, an input
    "audio": ("recordings of speech", "automatic-speech-recognition", "speech.wav"),
    "line": ("pictures of lines of text", "image-to-text", "line.png"),
    "frames": ("sequences of frames", None, "frames.npz"),
}


class RecognizeDescription(Description):
    def usage(self, model: Model) -> Usage:
        assets: RecognizeAssets = model.assets
        what, pipeline, file = KINDS[assets.reader.kind]
        return Usage(
            f"It writes down {what}.",
            pipeline,
            file,
            f'model.predict("{file}").text',
            (f"It writes {len(assets.labels) - 1} symbols alone: {' '.join(assets.labels.names[1:60])}",),
        )

    def statistics(self, config: RecognizeConfig, data: Data, assets: RecognizeAssets) -> dict[str, Any]:
        store = feature_store(config, assets, data.train)
        known = {key_of(example) for example in data.train}
        unknown = [name for example in data.valid for name in assets.labels.unknown(example.text)]
        return {
            "train examples": len(data.train),
            "valid examples": len(data.valid),
            "reads": str(assets.reader),
            "labels": f"{len(assets.labels) - 1} and the blank: {' '.join(assets.labels.names[1:30])}",
            "steps, mean / longest": f"{store.lengths.mean():.1f} / {store.lengths.max()}",
            "too short for their transcripts": ", ".join(
                f"{_too_short(config, assets, part)} of {len(part)} {name}"
                for name, part in (("train", data.train), ("valid", data.valid))
            ),
            "features in memory": f"{store.kept} of {len(data.train)}",
            "valid labels unknown": f"{len(unknown)} {' '.join(sorted(set(unknown))[:20])}".strip(),
            "valid inputs also in train": f"{sum(key_of(e) in known for e in data.valid)} of {len(data.valid)}",
        }


def _too_short(config: RecognizeConfig, assets: RecognizeAssets, examples: Sequence[Transcribed]) -> int:
    targets = [assets.labels.ids(example.text) for example in examples]
    return len(too_short(config, assets, examples, feature_store(config, assets, examples), targets))


def key_of(example: Transcribed) -> bytes:
    """The identity of an input: a file by its name and size, an array by its contents."""
    one = example.input
    return f"{one.path.name}/{one.member}/{one.size()}".encode() if isinstance(one, Medium) else one.tobytes()
