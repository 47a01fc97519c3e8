"""Posteriors of real lines of print and real speech, from recognisers that train in minutes on two cores.

    UNROLLED_DATA=... python benchmarks/real_posteriors.py FOLDER

FOLDER keeps the models, so a second call only reads them. Each set occurs twice: as it is, and disturbed (noise added
to recordings, grain and blur to lines), where the network is far less confident.
"""

from __future__ import annotations

import csv
import io
import os
import random
import sys
import wave
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import unrolled
from unrolled.data.readers.media.transcripts import tidy
from unrolled.data.signals.line_images import prepared_line
from unrolled.models.recognizer import Recognizer
from unrolled.tasks.recognize.batches import features_batch

DATA = Path(os.environ["UNROLLED_DATA"])
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RATE = 8000
SETTINGS: dict[str, dict[str, Any]] = {
    "lines": {"train.max_steps": 700, "train.eval_every": 700, "train.batch_size": 16, "train.average": 0.98},
    "speech": {
        "data.bands": 40,
        "model.hidden_size": 96,
        "train.max_steps": 500,
        "train.eval_every": 500,
        "train.batch_size": 16,
        "train.average": 0.98,
    },
}


@dataclass(frozen=True)
class RealSet:
    """Utterances with their transcripts, and the lexicon and language model for a search over them."""

    name: str
    labels: list[str]  # the blank first
    posteriors: list[torch.Tensor]  # (T, V) log-probabilities each
    texts: list[str]
    words: list[str]  # of the training part
    sentences: list[str]


def real_sets(folder: Path, inputs: int = 120) -> list[RealSet]:
    """Lines and speech, as they are and disturbed, `inputs` of each."""
    found = []
    for name, make in (("lines", _lines), ("speech", _speech)):
        work = folder / name
        work.mkdir(parents=True, exist_ok=True)
        train, test = make(work)
        model = _model(name, work, train)
        reader, labels = model.assets.reader, model.assets.labels
        sentences = [labels.reference(text) for _, text in train]
        words = sorted({word for text in sentences for word in text.split()})
        scored = random.Random(0).sample(test, min(inputs, len(test)))
        texts = [labels.reference(text) for _, text in scored]
        noise = np.random.default_rng(0)
        for disturbed in (False, True):
            features = []
            for given, _ in scored:
                value = _disturbed(given, noise) if disturbed else given
                base = prepared_line(value, reader.shape[0]).columns if name == "lines" else reader.base(value)
                features.append(reader.features(base))
            label = f"{name}, {'disturbed' if disturbed else 'as they are'}"
            found.append(RealSet(label, list(labels.names), _posteriors(model, features), texts, words, sentences))
    return found


def _model(name: str, work: Path, train: list[tuple[NDArray[Any], str]]) -> unrolled.Model:
    run = work / "run"
    if not (run / "best.safetensors").is_file():
        manifest = work / "train.tsv"
        with zipfile.ZipFile(work / "train.zip", "w") as archive:
            for number, (given, _) in enumerate(train):
                archive.writestr(_file(name, number), _encoded(given))
        rows = (f"train.zip/{_file(name, number)}\t{text}\n" for number, (_, text) in enumerate(train))
        manifest.write_text("".join(rows), encoding="utf-8")
        unrolled.train("recognize", train=manifest, out=run, set=SETTINGS[name])
    return unrolled.load(run)


def _file(name: str, number: int) -> str:
    return f"{number}.{'png' if name == 'lines' else 'wav'}"


def _encoded(given: NDArray[Any]) -> bytes:
    import soundfile
    from PIL import Image

    file = io.BytesIO()
    if given.ndim == 2:
        Image.fromarray(given).save(file, "PNG")
    else:
        soundfile.write(file, given, RATE, format="WAV")
    return file.getvalue()


def _disturbed(given: NDArray[Any], noise: np.random.Generator) -> NDArray[Any]:
    if given.ndim == 1:
        return (given + noise.normal(0, 0.6 * given.std(), len(given))).astype(np.float32)
    from PIL import Image, ImageFilter

    blurred = np.asarray(Image.fromarray(given).filter(ImageFilter.GaussianBlur(given.shape[0] / 30)))
    return (blurred + noise.normal(0, 45, given.shape)).clip(0, 255).astype(np.uint8)


def _lines(work: Path) -> tuple[list[tuple[NDArray[Any], str]], list[tuple[NDArray[Any], str]]]:
    from PIL import Image

    parts: dict[str, list[tuple[NDArray[Any], str]]] = {"train": [], "test": []}
    with (DATA / "fraktur_ocr" / "lines.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    with zipfile.ZipFile(DATA / "fraktur_ocr" / "lines.zip") as archive:
        for row in rows:
            picture = Image.open(io.BytesIO(archive.read(row["file"]))).convert("L")
            parts[row["split"]].append((np.asarray(picture), tidy(row["text"])))
    return parts["train"], parts["test"]


def _speech(work: Path) -> tuple[list[tuple[NDArray[Any], str]], list[tuple[NDArray[Any], str]]]:
    """Two to seven digits of one speaker in a row; the official test recordings are not used for training."""
    spoken: dict[str, dict[tuple[str, int], list[NDArray[Any]]]] = {"train": {}, "test": {}}
    with zipfile.ZipFile(DATA / "fsdd" / "recordings.zip") as archive:
        for row in csv.DictReader((DATA / "fsdd" / "manifest.tsv").open(), delimiter="\t"):
            with wave.open(io.BytesIO(archive.read(row["file"]))) as file:
                samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2").astype(np.float32) / 32768
            part = "test" if int(row["index"]) < 5 else "train"
            spoken[part].setdefault((row["speaker"], int(row["digit"])), []).append(samples)
    drawn = np.random.default_rng(0)
    parts: dict[str, list[tuple[NDArray[Any], str]]] = {"train": [], "test": []}
    for part, recordings in spoken.items():
        speakers = sorted({speaker for speaker, _ in recordings})
        for _ in range(1500 if part == "train" else 200):
            speaker = speakers[drawn.integers(len(speakers))]
            digits = drawn.integers(0, 10, drawn.integers(2, 8)).tolist()
            pieces = [_gap(drawn)]
            for digit in digits:
                choices = recordings[speaker, digit]
                pieces += [choices[drawn.integers(len(choices))], _gap(drawn)]
            parts[part].append((np.concatenate(pieces), " ".join(DIGITS[digit] for digit in digits)))
    return parts["train"], parts["test"]


def _gap(drawn: np.random.Generator) -> NDArray[np.float32]:
    return drawn.normal(0, 2e-4, drawn.integers(RATE // 20, 2 * RATE // 5)).astype(np.float32)


@torch.no_grad()
def _posteriors(model: unrolled.Model, features: list[NDArray[np.float32]]) -> list[torch.Tensor]:
    network = model.network.eval()
    assert isinstance(network, Recognizer)
    return [network(features_batch([one]))[0][0].contiguous() for one in features]


if __name__ == "__main__":
    for one in real_sets(Path(sys.argv[1])):
        sure = torch.cat(one.posteriors).max(1).values.exp().mean()
        print(f"{one.name}: {len(one.posteriors)} inputs, {len(one.labels)} labels, best label {sure:.1%} on average")
