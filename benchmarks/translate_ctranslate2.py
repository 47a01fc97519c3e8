"""CTranslate2's side of `translate_transformer.py`, run by its own Python: our Transformer's weights, converted.

Reads one JSON object from standard input: a file of weights, sizes, sources, threads. Then, for every line: "score"
answers with the log-probabilities of the targets, "search" translates all sources and answers with the time.
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

import ctranslate2
import numpy as np
from clocks import CLOCKS
from ctranslate2.specs import transformer_spec

BEGIN, END, UNKNOWN = "<bos>", "<eos>", "<unk>"


def linear(spec: Any, weights: Any, *names: str) -> None:
    spec.weight = np.concatenate([weights[f"{name}weight"] for name in names])
    spec.bias = np.concatenate([weights[f"{name}bias"] for name in names])


def norm(spec: Any, weights: Any, name: str) -> None:
    spec.gamma, spec.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]


def itself(spec: Any, weights: Any, name: str, before: str) -> None:
    norm(spec.layer_norm, weights, before)
    linear(spec.linear[0], weights, f"{name}.in_proj_")
    linear(spec.linear[1], weights, f"{name}.out_proj.")


def to_memory(spec: Any, weights: Any, name: str, before: str) -> None:
    norm(spec.layer_norm, weights, before)
    weight, bias = weights[f"{name}.in_proj_weight"], weights[f"{name}.in_proj_bias"]
    size = weight.shape[1]
    spec.linear[0].weight, spec.linear[0].bias = weight[:size], bias[:size]
    spec.linear[1].weight, spec.linear[1].bias = weight[size:], bias[size:]
    linear(spec.linear[2], weights, f"{name}.out_proj.")


def feed_forward(spec: Any, weights: Any, name: str, before: str) -> None:
    norm(spec.layer_norm, weights, f"{name}.{before}")
    linear(spec.linear_0, weights, f"{name}.linear1.")
    linear(spec.linear_1, weights, f"{name}.linear2.")


def converted(job: dict[str, Any], weights: Any) -> Any:
    spec = transformer_spec.TransformerSpec.from_config(
        (job["encoder_blocks"], job["decoder_blocks"]), job["heads"], pre_norm=True
    )
    for side, table in ((spec.encoder, "source.weight"), (spec.decoder, "embedding.weight")):
        embeddings = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embeddings.weight = weights[table]
        side.scale_embeddings = True
        side.position_encodings.encodings = weights["positions"]
    for name, side in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        norm(side.layer_norm, weights, f"{name}.norm")
        for i, layer in enumerate(side.layer):
            place = f"{name}.layers.{i}"
            itself(layer.self_attention, weights, f"{place}.self_attn", f"{place}.norm1")
            if name == "decoder":
                to_memory(layer.attention, weights, f"{place}.multihead_attn", f"{place}.norm2")
            feed_forward(layer.ffn, weights, place, "norm3" if name == "decoder" else "norm2")
    linear(spec.decoder.projection, weights, "scores.")
    spec.register_source_vocabulary(job["source_tokens"])
    spec.register_target_vocabulary(job["target_tokens"])
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = BEGIN, END, UNKNOWN
    spec.config.decoder_start_token = BEGIN
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize(quantization="float32")
    return spec


def main() -> None:
    job = json.loads(sys.stdin.readline())
    clock = CLOCKS[job["clock"]]
    with tempfile.TemporaryDirectory() as folder:
        converted(job, np.load(job["weights"])).save(folder)
        translator = ctranslate2.Translator(
            folder, device="cpu", compute_type="float32", inter_threads=1, intra_threads=job["threads"]
        )
    print(json.dumps({"ctranslate2": ctranslate2.__version__}), flush=True)
    for line in sys.stdin:
        if line.strip() == "score":
            found = translator.score_batch(job["sources"][:8], job["targets"][:8])
            print(json.dumps({"log_probs": [sum(one.log_probs) for one in found]}), flush=True)
            continue
        began = clock()
        found = translator.translate_batch(
            job["sources"], beam_size=job["beam"], max_batch_size=job["batch"], batch_type="examples",
            length_penalty=1, min_decoding_length=job["tokens"] - 1, max_decoding_length=job["tokens"],
        )  # fmt: skip
        seconds = clock() - began
        words = sum(len(one.hypotheses[0]) for one in found)
        print(json.dumps({"seconds": seconds, "sentences": len(found), "words": words}), flush=True)


if __name__ == "__main__":
    main()
