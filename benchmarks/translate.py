"""Training an attention model and beam search against joeynmt; beam search of a Transformer against CTranslate2.

    python benchmarks/translate.py --joeynmt PYTHON --ctranslate2 PYTHON --data FOLDER [--rounds 4] [--threads 2]

The model: BiLSTM 2×256, LSTM 512 with additive attention and input feeding, embeddings of 256, Multi30k words (de → en,
seen twice or more), batches of 64 pairs. All train on the same batches, taking turns, one block each; the best block of
each counts. Ours is the training loop's own update, including batches made from ids; joeynmt's is its loss, backward
and step on prepared batches. All then translate the same sentences with a beam of 5 after the same training. The end is
allowed only as the 14th token, the mean length here: barely trained models would end at any time, and writing less must
not count as speed. fp32 is compared with fp32; bf16 is ours with products in bfloat16.

Each peer has an environment of its own with the interpreter PYTHON: pip install joeynmt==2.3.0 importlib_metadata; pip
install ctranslate2.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import torch
import translate_transformer
from clocks import CLOCKS
from measure import RESULTS, machine, row, show
from peer_process import Peer
from translate_ours import BEAM, PRECISIONS, SIZES, TOKENS, Ours


def theirs(ids: Any, end: int) -> list[int]:
    """Our ids as joeynmt's, which has a padding token at 1; with the end token."""
    return [i + 1 if i else 0 for i in [*ids.tolist(), end]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--joeynmt", required=True, help="the Python of an environment with joeynmt 2.3")
    parser.add_argument("--ctranslate2", required=True, help="the Python of an environment with CTranslate2")
    parser.add_argument("--data", type=Path, default=os.environ.get("UNROLLED_DATA"), required=False)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="processor: where others work too, one thread")
    options = parser.parse_args()
    if options.data is None:
        raise SystemExit("Where is the data? Give --data FOLDER, or set UNROLLED_DATA.")
    torch.set_num_threads(options.threads)
    ours = [
        Ours(Path(options.data), options.batches, options.clock, **{"train.precision": name}) for name in PRECISIONS
    ]
    joeynmt = Peer(options.joeynmt, "translate_joeynmt.py", "joeynmt.search", job_of(ours[0], options))
    turns = [[one.train() for one in ours] + [joeynmt.ask("train")] for _ in range(options.rounds + 1)][1:]
    searches = [
        [one.translate(name) for one, name in zip(ours, PRECISIONS, strict=True)] + [joeynmt.ask("search")]
        for _ in range(options.rounds)
    ]
    joeynmt.close()
    rows = against_joeynmt(turns, searches)
    show("against joeynmt", rows)
    more, transformer = translate_transformer.measure(options)
    show("against CTranslate2, a Transformer", more)
    facts = {
        "parameters": ours[0].model.num_parameters,
        "joeynmt": joeynmt.about,
        "transformer": transformer,
        "clock": options.clock,
        "machine": machine(),
        "rows": rows + more,
    }
    (RESULTS / "translate.json").write_text(json.dumps(facts, indent=1) + "\n")


def job_of(ours: Ours, options: argparse.Namespace) -> dict[str, Any]:
    """The job for joeynmt's process."""
    assets = ours.model.assets
    pairs = [[[theirs(s, assets.source.end), theirs(t, assets.target.end)] for s, t in batch] for batch in ours.pairs]
    sizes = [assets.source_size + 1, assets.target_size + 1]
    rest = {
        "lr": 1e-3,
        "beam": BEAM,
        "tokens": TOKENS,
        "batches": pairs,
        "threads": options.threads,
        "clock": options.clock,
    }
    return {**SIZES, "vocabularies": sizes, **rest}


def against_joeynmt(turns: list[Any], searches: list[Any]) -> list[dict[str, Any]]:
    rows = []
    for what, blocks, count, bars in (
        ("training, target tokens/s", turns, "tokens", ("3×", "5×")),
        ("beam 5, sentences/s", searches, "sentences", ("3×", "8×")),
    ):
        *ours, peer = [max(block[side][count] / block[side]["seconds"] for block in blocks) for side in range(3)]
        for side, name in enumerate(PRECISIONS):
            note = f"{ours[side]:,.0f} : {peer:,.0f}"
            if count == "tokens":
                note += f", loss {blocks[-1][side]['loss']:.2f} : {blocks[-1][2]['loss']:.2f}"
            rows.append(row(f"{what}, {name}", ours[side] / peer, *bars, note))
    return rows


if __name__ == "__main__":
    main()
