"""joeynmt's side of `translate.py`, run by joeynmt's own Python: builds the requested model and times blocks of work.

Reads one JSON object from standard input: batches of token ids, sizes, threads. Then, for every line, "train" trains
one block and answers with its seconds, target tokens and mean loss; "search" translates the batches by beam search.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import torch
from clocks import CLOCKS
from joeynmt.batch import Batch
from joeynmt.model import build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary

SPECIALS = SimpleNamespace(
    unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", sep_token=None,
    unk_id=0, pad_id=1, bos_id=2, eos_id=3, sep_id=None, lang_tags=[],
)  # fmt: skip


def model_of(job: dict[str, Any]) -> Any:
    vocabularies = [Vocabulary([f"w{i}" for i in range(size - 4)], SPECIALS) for size in job["vocabularies"]]
    embeddings = {"embedding_dim": job["embedding_size"], "dropout": job["dropout"]}
    config = {
        "initializer": "xavier_uniform",
        "encoder": {
            "type": "recurrent",
            "rnn_type": "lstm",
            "embeddings": embeddings,
            "hidden_size": job["encoder_size"],
            "bidirectional": True,
            "num_layers": job["encoder_layers"],
            "dropout": job["dropout"],
        },
        "decoder": {
            "type": "recurrent",
            "rnn_type": "lstm",
            "embeddings": embeddings,
            "hidden_size": job["decoder_size"],
            "num_layers": 1,
            "dropout": job["dropout"],
            "hidden_dropout": job["dropout"],
            "input_feeding": True,
            "init_hidden": "bridge",
            "attention": "bahdanau",
        },
    }
    model = build_model(config, *vocabularies)
    model.loss_function = ("crossentropy", 0.0)
    return model


def padded(rows: list[list[int]]) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [SPECIALS.pad_id] * (longest - len(row)) for row in rows])


def batch_of(pairs: list[Any], train: bool) -> Batch:
    sources = [source for source, _ in pairs]
    targets = padded([[SPECIALS.bos_id, *target] for _, target in pairs]) if train else None
    batch = Batch(
        padded(sources), torch.tensor([len(s) for s in sources]), None, targets, None,
        torch.arange(len(pairs)), torch.device("cpu"), SPECIALS.pad_id, SPECIALS.eos_id, is_train=train,
    )  # fmt: skip
    batch.sort_by_src_length()
    return batch


def train(
    model: Any, optimizer: torch.optim.Optimizer, batches: list[Batch], clock: Callable[[], float]
) -> dict[str, float]:
    model.train()
    began, total, tokens = clock(), 0.0, 0
    for batch in batches:
        loss, *_ = model(return_type="loss", **vars(batch))
        batch.normalize(loss, "tokens").backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        total, tokens = total + float(loss), tokens + batch.ntokens
    return {"seconds": clock() - began, "tokens": tokens, "loss": total / tokens}


def translate(model: Any, job: dict[str, Any], clock: Callable[[], float]) -> dict[str, float]:
    model.eval()
    batches = [batch_of(pairs, train=False) for pairs in job["batches"]]
    began, sentences, words = clock(), 0, 0
    for batch in batches:
        tokens = job["tokens"]
        output, _, _ = search(model, batch, tokens, job["beam"], 1.0, generate_unk=True, min_output_length=tokens - 1)
        sentences += len(output)
        words += int((output != SPECIALS.pad_id).sum())
    return {"seconds": clock() - began, "sentences": sentences, "words": words}


def main() -> None:
    job = json.loads(sys.stdin.readline())
    torch.set_num_threads(job["threads"])
    clock = CLOCKS[job["clock"]]
    model = model_of(job)
    batches = [batch_of(pairs, train=True) for pairs in job["batches"]]
    optimizer = torch.optim.Adam(model.parameters(), lr=job["lr"])
    about = {"joeynmt": version("joeynmt"), "torch": torch.__version__}
    print(json.dumps({**about, "parameters": sum(p.numel() for p in model.parameters())}), flush=True)
    for line in sys.stdin:
        done = train(model, optimizer, batches, clock) if line.strip() == "train" else translate(model, job, clock)
        print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
