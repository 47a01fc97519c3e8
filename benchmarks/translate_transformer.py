"""A Transformer's beam search against CTranslate2 in float32 on the same weights: the second part of `translate.py`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import row
from peer_process import Peer
from translate_ours import BEAM, PRECISIONS, TOKENS, Ours

from unrolled.nn.positions import sinusoidal
from unrolled.search import Limits, score_targets
from unrolled.tasks.translate.batches import source_batch

SIZES = {"encoder.hidden_size": 256, "encoder.blocks": 3, "decoder.blocks": 3, "encoder.heads": 4, "decoder.heads": 4}
LONGEST = 512
AT_ONCE = 90  # sentences in a batch, about as many as ours


def measure(options: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows of the table, and the compared outputs."""
    more = {f"model.{key}": value for key, value in SIZES.items()}
    ours = Ours(Path(options.data), options.batches, options.clock, **{"model.kind": "transformer", **more})
    ours.train()
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "weights.npz"
        np.savez(weights, **weights_of(ours))
        peer = Peer(options.ctranslate2, "translate_ctranslate2.py", "ctranslate2", job_of(ours, weights, options))
    agree(ours, peer.ask("score")["log_probs"])
    blocks = [[*(ours.translate(name) for name in PRECISIONS), peer.ask("search")] for _ in range(options.rounds)]
    peer.close()
    *speeds, theirs = [max(b[side]["sentences"] / b[side]["seconds"] for b in blocks) for side in range(3)]
    rows = [
        row(f"beam 5, sentences/s, {name}, to its fp32", speed / theirs, "", "1×", f"{speed:,.0f} : {theirs:,.0f}")
        for name, speed in zip(PRECISIONS, speeds, strict=True)
    ]
    return rows, {**SIZES, "parameters": ours.model.num_parameters, **peer.about}


def weights_of(ours: Ours) -> dict[str, Any]:
    found = {name: tensor.numpy() for name, tensor in ours.model.network.state_dict().items()}
    width = found["embedding.weight"].shape[1]
    return {**found, "positions": sinusoidal(torch.arange(LONGEST), width).numpy()}


def job_of(ours: Ours, weights: Path, options: argparse.Namespace) -> dict[str, Any]:
    assets = ours.model.assets
    source, target = assets.source.tokenizer, assets.target.tokenizer
    pairs = [pair for batch in ours.pairs for pair in batch]
    return {
        "weights": str(weights),
        "encoder_blocks": SIZES["encoder.blocks"],
        "decoder_blocks": SIZES["decoder.blocks"],
        "heads": SIZES["encoder.heads"],
        "source_tokens": [source.token(i) for i in range(len(source))],
        "target_tokens": [target.token(i) for i in range(len(target))],
        "sources": [assets.source.shown(s.tolist()) for s, _ in pairs],
        "targets": [assets.target.shown(t.tolist()) for _, t in pairs],
        "beam": BEAM,
        "tokens": TOKENS,
        "batch": AT_ONCE,
        "threads": options.threads,
        "clock": options.clock,
    }


@torch.no_grad()
def agree(ours: Ours, theirs: list[float]) -> None:
    """Require the same log-probabilities of the same targets before anything is timed."""
    assets, network = ours.model.assets, ours.model.network.eval()
    pairs = [pair for batch in ours.pairs for pair in batch][: len(theirs)]
    memory = network.encode(source_batch(assets, [s for s, _ in pairs]))  # type: ignore[operator]
    targets = [t.tolist() for _, t in pairs]
    limits = Limits(end=assets.target.end)
    ours_scored = score_targets(network, targets, limits, start=assets.target.begin, memory=memory)  # type: ignore[arg-type]
    for mine, other in zip(ours_scored, theirs, strict=True):
        if abs(mine.log_prob - other) > 1e-4 * abs(other):
            problem = f"log P is {mine.log_prob:.4f} here and {other:.4f} in CTranslate2"
            raise SystemExit(f"{problem}: they are not the same model.")
