"""Vectors of sentences: against torch.nn and NumPy, and as files. The models are the stored ones."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from tests.cli.test_generate import call
from tests.tolerances import assert_close
from unrolled import Model, UserError, load
from unrolled.tasks.generate.predict import start_token
from unrolled.tasks.translate.batches import source_batch
from unrolled.text.sentence_vectors import nearest_rows

STORED = Path(__file__).parent.parent / "compat" / "2026-11"
TEXTS = ["3 5 7", "8", "5 3", "7 7 7 3", "8 8"]


def stored(name: str) -> Model:
    return load(STORED / f"{name}.safetensors")


def memory_of(model: Model, text: str) -> NDArray[np.float32]:
    """The encoder's vectors of one source, (S, D)."""
    network: Any = model.network.eval()
    with torch.no_grad():
        encoded = network.encode(source_batch(model.assets, [model.assets.source.ids(text)]))
    memory: NDArray[np.float32] = encoded.memory[0].numpy()
    return memory


def close(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    assert_close(torch.from_numpy(np.asarray(found)), torch.from_numpy(np.asarray(expected)))


def test_a_sources_vector_is_the_encoders_final_state() -> None:
    """torch.nn.LSTM with the same weights, each sentence alone: h of the last layer, both directions."""
    model = stored("translate-luong")
    encoder: Any = model.network.get_submodule("encoder")
    layer = encoder.layer
    theirs = nn.LSTM(layer.input_size, layer.hidden_size, bidirectional=True, batch_first=True)
    theirs.load_state_dict(layer.state_dict())
    found = model.embed(TEXTS)
    for text, vector in zip(TEXTS, found, strict=True):
        ids = source_batch(model.assets, [model.assets.source.ids(text)]).inputs
        with torch.no_grad():
            _, (hidden, _) = theirs(encoder.embedding(ids))
        close(vector, torch.cat([hidden[0, 0], hidden[1, 0]]).numpy())
        close(model.embed(text), vector)
        close(model.embed(text, pooling="mean"), memory_of(model, text).mean(0))
        close(model.embed(text, pooling="max"), memory_of(model, text).max(0))
    close(model.embed(TEXTS, pooling="last"), found)


def test_a_reversed_source_and_one_network_have_a_final_state_too() -> None:
    plain: Any = stored("translate-plain")
    network: Any = plain.network.eval()
    with torch.no_grad():
        encoded = network.encode(source_batch(plain.assets, [plain.assets.source.ids("3 5 7")]))
    close(plain.embed("3 5 7"), encoded.state[0][0, -1].numpy())
    stepwise = stored("translate-stepwise")
    assert stepwise.embed(["3 5", "7"]).shape == stepwise.embed(["3 5", "7"], pooling="max").shape == (2, 8)


def test_a_transformer_has_no_final_state() -> None:
    model = stored("translate-transformer")
    close(model.embed("3 5"), memory_of(model, "3 5").mean(0))
    with pytest.raises(UserError) as error:
        model.embed("3 5", pooling="last")
    assert str(error.value) == "pooling=last: a Transformer's encoder has no final state. Use mean or max."


@pytest.mark.parametrize("kind", ["generate-lstm", "generate-transformer", "generate-feedforward"])
def test_a_language_model_is_where_it_stopped_reading(kind: str) -> None:
    """The vector of the last token gives the next one's scores; a batch is as good as one text."""
    model, texts = stored(kind), ["3 and 4 make 7", "1", "8 and 8"]
    network: Any = model.network.eval()
    found = model.embed(texts)
    for text, vector in zip(texts, found, strict=True):
        close(model.embed(text), vector)
        ids = torch.tensor([[start_token(model.assets), *model.assets.ids(text).tolist()]])
        with torch.no_grad():
            scores, _ = network(ids)
            assert_close(network.scores(torch.from_numpy(vector)), scores[0, -1])
    states = model.embed(texts, pooling="mean")
    assert states.shape == found.shape
    assert not np.allclose(states, found)


def test_classifiers_taggers_pictures_and_recordings() -> None:
    classify, tag, caption, recognize = map(stored, ["classify", "tag-crf", "caption", "recognize"])
    assert classify.embed(["one fine", "two"]).shape == (2, 24)  # attention and last, as the model pools
    assert classify.embed("one fine", pooling="mean").shape == (12,)
    means, last = tag.embed(["Ada met Kurt", "in"]), tag.embed(["Ada met Kurt", "in"], pooling="last")
    close(means[1], last[1])  # of one word
    assert not np.allclose(means[0], last[0])
    assert caption.embed(str(STORED / "picture.png")).shape == (8,)
    with pytest.raises(UserError, match=r"^pooling=last: a picture's regions have no order\. Use mean or max\.$"):
        caption.embed(str(STORED / "picture.png"), pooling="last")
    assert recognize.embed([str(STORED / "sound.wav")] * 2).shape == (2, 16)
    with pytest.raises(UserError, match=r"Unknown pooling 'men'\. Did you mean 'mean'\?"):
        recognize.embed(str(STORED / "sound.wav"), pooling="men")
    with pytest.raises(UserError, match=r"A model of forecast has no encoder that gives one vector"):
        stored("forecast").embed(np.zeros((3, 2)), pooling="mean")


def test_nearest_rows_are_those_of_numpy() -> None:
    random = np.random.default_rng(0)
    table, query = random.normal(size=(50, 7)).astype(np.float32), random.normal(size=7).astype(np.float32)
    table[3] = 0
    cosines = [float(np.dot(row, query) / max(np.linalg.norm(row), 1e-9) / np.linalg.norm(query)) for row in table]
    found = nearest_rows(table, query, 10)
    assert [row for row, _ in found] == sorted(range(50), key=lambda row: -cosines[row])[:10]
    assert [cosine for _, cosine in found] == pytest.approx([cosines[row] for row, _ in found])
    with pytest.raises(UserError, match="The vector of this sentence is zero"):
        nearest_rows(table, np.zeros(7, dtype=np.float32), 3)


def test_files_of_vectors_hold_the_same_bits(tmp_path: Path) -> None:
    model, sources = STORED / "translate-luong.safetensors", tmp_path / "a.txt"
    sources.write_text("".join(f"{text}\n" for text in TEXTS))
    expected = load(model).embed(TEXTS)
    for suffix in ("npz", "jsonl", "csv"):
        code, _, said = call("embed", model, sources, "--out", tmp_path / f"v.{suffix}")
        assert (code, said) == (0, f"Wrote 5 vectors of 16 numbers to {tmp_path}/v.{suffix}.\n")
    with np.load(tmp_path / "v.npz") as arrays:
        assert arrays["texts"].tolist() == TEXTS
        assert np.array_equal(arrays["vectors"], expected)
    lines = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert [line["text"] for line in lines] == TEXTS
    assert np.array_equal(np.array([line["vector"] for line in lines], dtype=np.float32), expected)
    with (tmp_path / "v.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["text", *map(str, range(16))]
    assert np.array_equal(np.array([row[1:] for row in rows], dtype=np.float32), expected)
    assert call("embed", model, sources)[1] == (tmp_path / "v.jsonl").read_text()


def test_nothing_is_overwritten_unless_asked(tmp_path: Path) -> None:
    model, sources, out = STORED / "translate-luong.safetensors", tmp_path / "a.txt", tmp_path / "v.jsonl"
    sources.write_text("3 5\n")
    out.write_text("mine")
    code, _, said = call("embed", model, sources, "--out", out)
    assert (code, said) == (2, f"unrolled: {out} exists. Choose another name, or overwrite it with --force.\n")
    assert out.read_text() == "mine"
    assert call("embed", model, sources, "--out", out, "--force", "--pooling", "max")[0] == 0
    assert json.loads(out.read_text())["text"] == "3 5"
    said = call("embed", model, sources, "--out", tmp_path / "v.bin")[2]
    assert "Unknown kind of file 'v.bin'." in said


def test_the_sentences_nearest_to_one(tmp_path: Path) -> None:
    model, sources = STORED / "translate-luong.safetensors", tmp_path / "a.txt"
    sources.write_text("".join(f"{text}\n" for text in TEXTS))
    code, out, _ = call("embed", model, sources, "--nearest", "5 3", "--count", "2")
    first, second = out.splitlines()
    assert (code, first) == (0, "1.0000  5 3")
    found = json.loads(call("embed", model, sources, "--nearest", "5 3", "--count", "2", "--json")[1])
    assert found["query"] == "5 3"
    assert second == f"{found['nearest'][1]['cosine']:.4f}  {found['nearest'][1]['text']}"
