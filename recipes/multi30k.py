"""Multi30k, test_2016_flickr: German ↔ English with attention and with a Transformer; BLEU with sacrebleu's signature.

    python recipes/multi30k.py --data FOLDER [--only de-en-rnn,…] [--seeds 0] [--device cuda] [--out FOLDER]
        [--set KEY=VALUE ...]

FOLDER, by default $UNROLLED_DATA, holds multi30k (train, val, test_2016_flickr; .de and .en, raw). German → English is
lower-cased on both sides, as published; English → German keeps its case. Every run writes OUT/multi30k-PART-SEED.json
when it is done, and is not repeated; at the end they become OUT/multi30k.json.

The scored sentences choose nothing: there is one evaluation, after the last update. Settings are chosen on val, with
the parts that end in -val.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import Files, Part, main

DATA = ("multi30k/train.*", "multi30k/test_2016_flickr.*")
RNN: dict[str, Any] = {
    "data.level": "bpe",
    "model.embedding_size": 256,
    "model.encoder.num_layers": 2,
    "model.encoder.hidden_size": 256,
    "model.decoder.hidden_size": 512,
    "model.decoder.score": "additive",
    "model.encoder.dropout": 0.4,
    "model.decoder.dropout": 0.4,
    "train.batch_tokens": 4096,
    "train.lr": 2e-3,
    "train.epochs": 30,
    "train.average": 0.998,
}
TRANSFORMER: dict[str, Any] = {
    "data.level": "bpe",
    "model.kind": "transformer",
    "model.encoder.hidden_size": 256,
    "model.encoder.blocks": 4,
    "model.decoder.blocks": 4,
    "model.encoder.heads": 4,
    "model.decoder.heads": 4,
    "model.encoder.feedforward": 512,
    "model.decoder.feedforward": 512,
    "model.encoder.dropout": 0.3,
    "model.decoder.dropout": 0.3,
    "train.batch_tokens": 4096,
    "train.lr": 1e-3,
    "train.warmup_steps": 1000,
    "train.epochs": 60,
    "train.average": 0.998,
}


def pairs(source: str, target: str, scored: str) -> Callable[[Path, Path], Files]:
    """Tables of the training pairs and of the pairs to score."""

    def files(data: Path, work: Path) -> Files:
        made = []
        for name in ("train", scored):
            columns = [(data / "multi30k" / f"{name}.{side}").read_text().split("\n") for side in (source, target)]
            path = work / f"{name}.tsv"
            path.write_text(
                "".join(f"{' '.join(s.split())}\t{' '.join(t.split())}\n" for s, t in zip(*columns, strict=True) if s)
            )
            made.append(path)
        return made[0], made[1]

    return files


def part(source: str, target: str, kind: str, scored: str = "test_2016_flickr") -> Part:
    lower = (source, target) == ("de", "en")
    settings = {**(RNN if kind == "rnn" else TRANSFORMER), "data.lowercase": lower}
    about = f"{source} → {target}, {'lower-cased' if lower else 'cased'}, {kind}, {scored}"
    bar = None if scored == "val" else 36.0 if kind == "rnn" else 38.0
    published = "26.8 attention, 36.5 Transformer (bentrevett)" if lower else "41.0 Transformer-tiny (Wu et al. 2021)"
    return Part(about, "translate", pairs(source, target, scored), {"bleu": bar}, published, settings, unit=1.0)


DIRECTIONS = (("de", "en"), ("en", "de"))
PARTS = {f"{s}-{t}-{kind}": part(s, t, kind) for s, t in DIRECTIONS for kind in ("rnn", "transformer")}
CHOOSING = {f"{s}-{t}-{kind}-val": part(s, t, kind, "val") for s, t in DIRECTIONS for kind in ("rnn", "transformer")}

if __name__ == "__main__":
    main("multi30k", __doc__, PARTS | CHOOSING, seeds="0", only=",".join(PARTS))
