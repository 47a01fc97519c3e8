"""Batches made plainly, one example after the other: the tests compare the tasks' own with them, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrolled.data import Batch, RowBuckets
from unrolled.data.batching.ragged_windows import RaggedWindows
from unrolled.data.signals.augment import changed_line, changed_spectrum, masked_spectrum
from unrolled.tasks.classify.regression import numbers_of
from unrolled.text import split_words
from unrolled.text.words import MOST_LETTERS, Words


def padded(arrays: Sequence[Any]) -> Tensor:
    table = np.zeros((len(arrays), max(1, *map(len, arrays), 1)), dtype=np.int64)
    for row, array in enumerate(arrays):
        table[row, : len(array)] = array
    return torch.from_numpy(table)


def words_batch(words: Words, sentences: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Word ids (B, T), lengths, and the letters of the distinct words in the order in which they come."""
    known, letters = words.vocabulary.tokens, words.letters.tokens
    numbers: dict[str, int] = {}
    ids, spelt = [], []
    for sentence in sentences:
        lower = [word.lower() if words.lowercase else word for word in sentence]
        ids.append([known.index(word) if word in known else 0 for word in lower])
        spelt.append([numbers.setdefault(word, len(numbers)) for word in sentence])
    spellings = []
    for word in numbers:
        short = word if len(word) <= MOST_LETTERS else word[: MOST_LETTERS // 2] + word[-MOST_LETTERS // 2 :]
        spellings.append([letters.index(letter) if letter in letters else 0 for letter in short])
    spellings = spellings if numbers else [[0]]
    more = {
        "spellings": padded(spellings),
        "spelling_lengths": torch.tensor([len(one) for one in spellings]),
        "spelt": padded(spelt),
    }
    return padded(ids), torch.tensor([len(one) for one in sentences]), more


def frames_batch(sequences: Sequence[NDArray[np.float32]]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(frames) for frames in sequences])
    table = np.zeros((len(sequences), max(1, int(lengths.max())), *sequences[0].shape[1:]), dtype=np.float32)
    for row, frames in enumerate(sequences):
        table[row, : len(frames)] = frames
    return torch.from_numpy(table), lengths


def ngrams(texts: Sequence[str], buckets: int) -> dict[str, Tensor]:
    """Words, their character n-grams, then pairs of words, hashed; the n-grams of all texts end to end."""
    found = []
    for text in texts:
        lower, numbers = [word.lower() for word in split_words(text)], []
        for word in lower:
            spelt = f"^{word[:20]}…{word[-20:]}$" if len(word) > 40 else f"^{word}$"
            runs = {spelt[i : i + size] for size in range(2, 6) for i in range(len(spelt) - size + 1)}
            numbers += [crc32(word.encode()), *(crc32(b"\0" + run.encode()) for run in sorted(runs))]
        numbers += [crc32(f"{first} {second}".encode()) for first, second in pairwise(lower)]
        found.append(np.array(numbers, dtype=np.int64) % buckets)
    counts = torch.tensor([len(ids) for ids in found])
    each = [np.float32(1) / np.float32(math.sqrt(max(1, len(ids)))) for ids in found]  # torch's root may be an ulp off
    weights = torch.from_numpy(np.array(each)).repeat_interleave(counts)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)[:-1]])
    return {"ngrams": torch.from_numpy(np.concatenate(found)), "ngram_starts": starts, "ngram_weights": weights}


def wide_ngrams(texts: Sequence[str], kinds: Any) -> dict[str, Tensor]:
    """Each bucket once, by group: runs of words, then letters; weights 1 + ln c, at length 1 by group or by text."""
    ids, weights, starts = list[int](), list[float](), list[int]()
    for text in texts:
        lower, groups = [word.lower() for word in split_words(text)], []
        runs = [lower[i : i + n] for n in range(1, kinds.words + 1) for i in range(len(lower) - n + 1)]
        hashes = [crc32(" ".join(run).encode()) for run in runs]
        spelt = [f"^{word[:20]}…{word[-20:]}$" if len(word) > 40 else f"^{word}$" for word in lower]
        sizes = range(kinds.letters[0], kinds.letters[1] + 1) if kinds.letters else ()
        parts = [{word[i : i + n] for n in sizes for i in range(len(word) - n + 1)} for word in spelt]
        letters = [crc32(b"\0" + part.encode()) for several in parts for part in several]
        for found in (hashes, letters):
            counts: dict[int, int] = {}
            for one in found:
                counts[one % kinds.buckets] = counts.get(one % kinds.buckets, 0) + 1
            groups.append([(bucket, 1 + np.log(count)) for bucket, count in sorted(counts.items())])
        lengths = [sum(weight**2 for _, weight in group) for group in groups]
        starts.append(len(ids))
        for group, length in zip(groups, lengths, strict=True):
            ids += [bucket for bucket, _ in group]
            weights += [weight / np.sqrt(length if kinds.apart else sum(lengths)) for _, weight in group]
    return {
        "wide_ngrams": torch.tensor(ids, dtype=torch.int64),
        "wide_starts": torch.tensor(starts),
        "wide_weights": torch.tensor(np.array(weights), dtype=torch.float32),
    }


def classify_batch(config: Any, assets: Any, part: Sequence[Any], *, training: bool) -> Batch:
    """A batch of `Labelled`."""
    if training and config.train.consistency:
        part = [*part, *part]
    targets = _labels(config, assets, part)
    inputs = [one.input for one in part]
    reader, more = assets.reader, dict[str, Tensor]()
    if reader.words is not None:
        ids, lengths, more = words_batch(reader.words, [split_words(text) for text in inputs])
    elif reader.tokenizer is not None:
        tokens = [reader.tokenizer.ids(text) for text in inputs]
        ids, lengths = padded(tokens), torch.tensor([len(one) for one in tokens])
    else:
        ids, lengths = frames_batch(inputs)
    if assets.wide is not None:
        more |= wide_ngrams(inputs, assets.wide.kinds)
    if config.model.ngrams and isinstance(inputs[0], str):
        more |= ngrams(inputs, config.model.ngrams)
    if training and config.train.class_weights == "balanced":
        counts = torch.tensor(assets.counts, dtype=torch.float32).clamp(min=1)
        one = (counts.sum() / len(counts) / counts)[targets] if targets.dim() == 1 else None
        more["weights"] = torch.where(targets > 0, counts.mean() / counts, 1.0) if one is None else one
    return Batch(ids, targets, lengths=lengths, more=more)


def _labels(config: Any, assets: Any, part: Sequence[Any]) -> Tensor:
    if assets.scale is not None:
        mean, deviation = assets.scale
        return torch.from_numpy((numbers_of(part) - mean) / deviation).float()
    if not config.data.multi_label:
        first = [one.labels[0] for one in part]
        return torch.tensor([assets.labels.index(one) if one in assets.labels else -1 for one in first])
    table = torch.zeros(len(part), len(assets.labels))
    for row, one in enumerate(part):
        for label in one.labels:
            if label in assets.labels:
                table[row, assets.labels.index(label)] = 1
    return table


def tag_batch(assets: Any, part: Sequence[Any]) -> Batch:
    """A batch of sentences, or of frames, with the numbers of their tags."""
    more: dict[str, Tensor] = {}
    if assets.words is None:
        inputs, lengths = frames_batch([one.frames for one in part])
    else:
        inputs, lengths, more = words_batch(assets.words, [one.words for one in part])
    targets = torch.zeros(inputs.shape[:2], dtype=torch.int64)
    features = torch.zeros(*inputs.shape[:2], len(assets.features), dtype=torch.int64)
    for row, one in enumerate(part):
        if one.tags is not None:
            targets[row, : len(one)] = torch.tensor(assets.targets(one.tags), dtype=torch.int64)
        for i, values in enumerate(assets.features):
            features[row, : len(one), i] = torch.from_numpy(values.ids(one.features[i]))
    if assets.features:
        more["features"] = features
    return Batch(inputs, targets, lengths=lengths, more=more)


def with_targets(batch: Batch, side: Any, texts: Sequence[Any], more: dict[str, Tensor] | None = None) -> Batch:
    outputs = padded([[*ids, side.end] for ids in texts])
    inputs = padded([[side.begin, *ids] for ids in texts])
    lengths = torch.tensor([len(ids) + 1 for ids in texts])
    more = {**(more or {}), "target_inputs": inputs, "target_lengths": lengths}
    return Batch(batch.inputs, outputs, lengths=batch.lengths, more=more)


def translate_batch(config: Any, assets: Any, part: Sequence[Any], *, training: bool) -> Batch:
    """A batch of pairs of ids."""
    if training and config.train.consistency:
        part = [*part, *part]
    sources = [[*source, assets.source.end] for source, _ in part]
    batch = Batch(padded(sources), torch.zeros(len(part)), lengths=torch.tensor([len(one) for one in sources]))
    return with_targets(batch, assets.target, [target for _, target in part])


def caption_batch(config: Any, assets: Any, part: Sequence[Any], *, training: bool) -> Batch:
    """A batch of pictures with a caption each."""
    if training and config.train.consistency:
        part = [*part, *part]
    views = [one.example.view for one in part]
    inputs, more = torch.zeros(len(part), 1), dict[str, Tensor]()
    if views[0].values is not None:
        table = np.stack([view.values for view in views])
        inputs = torch.from_numpy(table if table.dtype == np.uint8 else table.astype(np.float32))
    if views[0].vector is not None:
        more["vectors"] = torch.from_numpy(np.stack([view.vector for view in views]).astype(np.float32))
    return with_targets(Batch(inputs, torch.zeros(0)), assets.target, [one.ids for one in part], more)


def recognize_batch(batches: Any, numbers: Sequence[int], epoch: int) -> Batch:
    """A batch of examples of `ExampleBatches`, augmented by (seed, epoch, number)."""
    settings, reader = batches.training, batches.reader
    if settings is not None and settings.consistency:
        numbers = [*numbers, *numbers]
    features = []
    for number in numbers:
        base = batches.store[number]
        random = None
        if settings is not None and settings.augment:
            random = np.random.default_rng((settings.seed, epoch, number))
        if random is not None and reader.kind == "audio":
            frames = reader.features(changed_spectrum(base.astype(np.float32), settings.spectrum, random))
            features.append(masked_spectrum(frames, reader.bands, settings.spectrum, random))
        elif random is not None and reader.kind == "line":
            features.append(reader.features(changed_line(base.astype(np.uint8), settings.line, random)))
        else:
            features.append(reader.features(base))
    inputs, lengths = frames_batch(features)
    labels = [batches.targets[number] for number in numbers]
    counts = torch.tensor([len(one) for one in labels])
    return Batch(inputs, padded(labels), lengths=lengths, more={"target_lengths": counts})


def forecast_batch(windows: RaggedWindows, plan: Sequence[Sequence[tuple[int, int]]], index: int) -> Batch:
    """A batch of windows; `plan` has the (piece, first step) of all windows of each row."""
    like, size = windows.pieces[0], windows.window
    places = [row[index] if index < len(row) else None for row in plan]
    parts = [None if one is None else windows.pieces[one[0]].cut(one[1], one[1] + size) for one in places]
    lengths = torch.tensor([0 if part is None else len(part) for part in parts])
    steps = int(lengths.max())
    inputs = torch.zeros(len(parts), steps, *like.inputs.shape[1:])
    targets = torch.full((len(parts), steps, *like.targets.shape[1:]), torch.nan)
    naive = None if like.naive is None else torch.full_like(targets, torch.nan)
    for row, part in enumerate(parts):
        if part is not None:
            inputs[row, : len(part)] = torch.from_numpy(part.inputs)
            targets[row, : len(part)] = torch.from_numpy(part.targets)
            if naive is not None and part.naive is not None:
                naive[row, : len(part)] = torch.from_numpy(part.naive)
    return Batch(
        inputs,
        targets,
        lengths=None if bool((lengths == steps).all()) else lengths,
        resets=torch.tensor([one is not None and one[1] == 0 for one in places]),
        more={} if naive is None else {"naive": naive},
    )


def plan_of(windows: RaggedWindows, epoch: int) -> list[list[tuple[int, int]]]:
    """The windows of each row in an epoch: pieces in the order that (seed, epoch) gives."""
    random = None if windows.seed is None else np.random.default_rng((windows.seed, epoch))
    plan = []
    for pieces in windows._pieces_of_row:
        order = pieces if random is None else [pieces[i] for i in random.permutation(len(pieces))]
        starts = [(piece, k) for piece in order for k in range(0, len(windows.pieces[piece]), windows.window)]
        plan.append(starts)
    return plan


def rows_of(batches: RowBuckets, index: int) -> list[Any]:
    """The examples of a batch."""
    examples: Sequence[Any] = batches.examples
    return [examples[i] for i in batches.rows(index)]
