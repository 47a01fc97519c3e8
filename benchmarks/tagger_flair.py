"""flair's side of `tagger.py`, run by flair's own Python: builds the requested tagger and times blocks of batches.

Reads one JSON object from standard input: batches of sentences, sizes, threads. Then, for every line, trains one block
and answers with its seconds, its words and its mean loss per word.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import flair
import torch
from flair.data import Dictionary, Sentence
from flair.embeddings import CharacterEmbeddings, OneHotEmbeddings, StackedEmbeddings
from flair.models import SequenceTagger


def dictionary(items: list[str], unk: bool) -> Dictionary:
    made = Dictionary(add_unk=unk)
    for item in items:
        made.add_item(item)
    return made


def tagger(job: dict[str, Any]) -> SequenceTagger:
    parts: list[Any] = [OneHotEmbeddings(dictionary(job["words"], True), embedding_length=job["embedding_size"])]
    if job["letter_hidden"]:
        letters = dictionary(job["letters"], True)
        parts.append(CharacterEmbeddings(letters, job["letter_size"], job["letter_hidden"]))
    return SequenceTagger(
        StackedEmbeddings(parts),
        dictionary(job["tags"], False),
        "tag",
        hidden_size=job["hidden_size"],
        use_crf=job["crf"],
        reproject_embeddings=False,
        dropout=job["dropout"],
        word_dropout=0.0,
        locked_dropout=0.0,
    )


def main() -> None:
    job = json.loads(sys.stdin.readline())
    torch.set_num_threads(job["threads"])
    flair.device = torch.device("cpu")
    model = tagger(job)
    model.train()
    batches = []
    for pairs in job["batches"]:
        batch = [Sentence(words) for words, _ in pairs]
        for sentence, (_, tags) in zip(batch, pairs, strict=True):
            for token, tag in zip(sentence, tags, strict=True):
                token.add_label("tag", tag)
        batches.append(batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=job["lr"])
    size = sum(p.numel() for p in model.parameters())
    print(json.dumps({"flair": flair.__version__, "torch": torch.__version__, "parameters": size}), flush=True)
    for _ in sys.stdin:
        began, total, words = time.perf_counter(), 0.0, 0
        for batch in batches:
            optimizer.zero_grad()
            loss, count = model.forward_loss(batch)
            (loss / count).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total, words = total + float(loss), words + sum(len(sentence) for sentence in batch)
            for sentence in batch:
                sentence.clear_embeddings()
        seconds = time.perf_counter() - began
        print(json.dumps({"seconds": seconds, "words": words, "loss": total / words}), flush=True)


if __name__ == "__main__":
    main()
