"""`generate` from Python: it learns, writes, scores, streams and shows its inside."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import unrolled
from tests.tasks.generate.conftest import SMALL, TEXT, small
from unrolled import Model, UserError, api
from unrolled.tasks import Request
from unrolled.tasks.generate.predict import TextWriter
from unrolled.text import WordTokenizer


def test_it_learns(model: Model) -> None:
    """Sixty updates on sums: far below the entropy of single characters, 2.6 nats."""
    assert model.scores["nats_per_token"] < 1.6


def test_it_overfits_a_line(tmp_path: Path) -> None:
    path = tmp_path / "line.txt"
    path.write_text("the quick brown fox jumps over the lazy dog. " * 20)
    keys = {**SMALL, "train.epochs": 40, "train.max_steps": 400, "train.batch_size": 4, "model.dropout": 0.0}
    model = api.train("generate", train=path, out=tmp_path / "run", set=keys, quiet=True)
    assert model.predict("the quick brown ", max_tokens=20, temperature=0) == "fox jumps over the l"


def test_one_seed_writes_one_text(model: Model) -> None:
    first = model.predict("3 and ", max_tokens=30, seed=5)
    assert first == model.predict("3 and ", max_tokens=30, seed=5)
    assert first != model.predict("3 and ", max_tokens=30, seed=6)
    assert len(first) == 30


def test_many_prompts_are_the_same_as_one(model: Model) -> None:
    prompts = ["3 and ", "", "11 and 4 make"]
    together = model.predict(prompts, max_tokens=20, temperature=0)
    assert together == [model.predict(p, max_tokens=20, temperature=0) for p in prompts]


def test_it_stops_before_a_stop_string(model: Model) -> None:
    text = model.predict("3 and 4", max_tokens=200, stop=("\n",), seed=1)
    assert "\n" not in text
    whole = model.predict("3 and 4", max_tokens=200, seed=1)
    assert whole.startswith(text + "\n")


def test_mistakes_in_a_call(model: Model) -> None:
    with pytest.raises(UserError, match=r"Unknown predict option 'temprature'\. Did you mean 'temperature'"):
        model.predict("3", temprature=1)
    with pytest.raises(UserError, match="A prompt must be a text or a list of texts, got 5"):
        model.predict(5)
    assert repr(model).startswith("Model(generate, ")
    assert repr(model.trace("3 and")).startswith("ModelTrace(generate, 5 steps, mean loss")


def test_saved_and_loaded_is_the_same(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "copy.safetensors")
    loaded = unrolled.load(tmp_path / "copy.safetensors")
    for (name, a), (_, b) in zip(model.network.named_parameters(), loaded.network.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    assert loaded.config == model.config
    assert loaded.scores == model.scores
    assert loaded.predict("1", max_tokens=20, seed=0) == model.predict("1", max_tokens=20, seed=0)


def test_evaluation_is_the_definition(model: Model, book: Path) -> None:
    """−Σ log p(token | all before it) / count, one long stream from a new line."""
    scores = model.evaluate(book)
    ids = model.assets.ids(TEXT)
    start = int(model.assets.ids("\n")[0])
    sequence = torch.tensor([[start, *ids.tolist()]])
    with torch.no_grad():
        logits, _ = model.network(sequence[:, :-1])
    nats = torch.nn.functional.cross_entropy(logits[0], sequence[0, 1:]).item()
    assert scores["nats_per_token"] == pytest.approx(nats, rel=1e-4)
    assert scores["perplexity"] == pytest.approx(math.exp(nats), rel=1e-4)
    assert scores["bits_per_char"] == pytest.approx(nats / math.log(2), rel=1e-4)
    assert scores["tokens"] == len(TEXT)


@pytest.mark.parametrize("pieces", [1, 2, 7, 50])
def test_a_stream_may_be_cut_anywhere(model: Model, pieces: int) -> None:
    text = TEXT[:300]
    with model.stream() as whole:
        whole.feed(text)
        whole.finish()
    with model.stream() as stream:
        step = -(-len(text) // pieces)
        for i in range(0, len(text), step):
            stream.feed(text[i : i + step])
        stream.finish()
        assert stream.nats == pytest.approx(whole.nats, rel=1e-5)
        assert stream.tokens == whole.tokens == len(text)
        assert "".join(stream.write(max_tokens=15, temperature=0)) == model.predict(text, max_tokens=15, temperature=0)


@pytest.mark.parametrize("level", ["char", "word", "bpe", "symbols"])
def test_every_level(level: str, book: Path, tmp_path: Path) -> None:
    model = small(book, tmp_path / "run", data__level=level, data__max_size=300)
    assert model.assets.level == level
    text = model.predict("3 and", max_tokens=10, seed=0)
    assert isinstance(text, str)
    assert text
    scores = model.evaluate(book)
    assert scores["tokens"] == len(model.assets.ids(TEXT))
    with model.stream() as stream:
        for piece in ("3 a", "nd 4 m", "ake 7\n8 and", " 1"):
            stream.feed(piece)
        stream.finish()
        with model.stream() as whole:
            whole.feed("3 and 4 make 7\n8 and 1")
            whole.finish()
        assert stream.nats == pytest.approx(whole.nats, rel=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"model__cell": "rnn"},
        {"model__cell": "rnn", "model__nonlinearity": "relu", "model__init": "identity"},
        {"model__cell": "gru", "model__reset_after": False},
        {"model__peephole": "current", "model__num_layers": 2},
        {
            "model__layer_norm": True,
            "model__zoneout": 0.1,
            "model__variational_dropout": 0.1,
            "model__dropconnect": 0.1,
        },
        {"model__combine": "concat", "model__num_layers": 2},
        {"model__tied": True, "model__embedding_size": None},
        {"model__kind": "transformer", "model__heads": 2},
        {"model__kind": "transformer", "model__positions": "learned", "model__norm_first": False, "model__tied": True},
        {
            "model__kind": "transformer",
            "model__positions": "fraction",
            "model__context": 7,
            "data__direction": "backward",
        },
        {"model__kind": "transformer", "train__precision": "bf16", "train__k2": 7},
        {"model__kind": "feedforward"},
        {"model__kind": "feedforward", "model__context_mode": "average", "model__context": 3},
        {"model__kind": "feedforward", "model__context": 1},
        {"data__direction": "backward"},
        {"train__stateful": False},
        {"train__k2": 7},
        {"train__k2": 50},
        {"train__optimizer": "sgd", "train__momentum": 0.9, "train__schedule": "plateau", "train__lr": 0.5},
        {"train__optimizer": "adam", "train__schedule": "constant", "train__clip_norm": None, "train__clip_value": 0.1},
        {"train__accumulate": 2},
        {"train__teacher_forcing": "linear"},
        {"train__teacher_forcing": "linear", "train__feedback": "steps", "train__k2": 30},
        {"train__teacher_forcing": "never", "model__kind": "feedforward"},
        {"train__precision": "bf16"},
        {"train__deterministic": True},
        {"model__init": "orthogonal+forget_bias"},
    ],
    ids=lambda changes: " ".join(f"{k}={v}" for k, v in changes.items()),
)
def test_every_option_trains_saves_and_writes(changes: dict[str, Any], book: Path, tmp_path: Path) -> None:
    model = small(book, tmp_path / "run", **changes)
    loaded = unrolled.load(tmp_path / "run")
    assert loaded.predict("3 and ", max_tokens=8, seed=0) == model.predict("3 and ", max_tokens=8, seed=0)
    assert math.isfinite(model.scores["nats_per_token"])
    torch.use_deterministic_algorithms(False)


def test_backward_is_forward_on_the_reversed_text(book: Path, tmp_path: Path) -> None:
    turned = tmp_path / "turned.txt"
    turned.write_text(TEXT[::-1])
    backward = small(book, tmp_path / "backward", data__direction="backward", data__valid=str(book))
    forward = api.train(
        "generate",
        train=turned,
        valid=turned,
        out=tmp_path / "forward",
        set={**SMALL, "train.max_steps": 4},
        quiet=True,
    )
    for a, b in zip(backward.network.parameters(), forward.network.parameters(), strict=True):
        assert torch.equal(a, b)
    assert backward.evaluate(book)["nats_per_token"] == pytest.approx(forward.evaluate(turned)["nats_per_token"])
    assert (
        backward.predict("dna", temperature=0, max_tokens=9)
        == forward.predict("and", temperature=0, max_tokens=9)[::-1]
    )
    with pytest.raises(UserError, match="cannot be fed from the beginning"):
        backward.stream()
    for stop in ((), ("a", "1")):
        options: dict[str, Any] = {"temperature": 0, "max_tokens": 9, "stop": stop}
        texts = []
        for prompt in ("dna", " 7", ""):
            text = "".join(backward.runner.run(Request(texts=[prompt]), **options))
            mirror = "".join(forward.runner.run(Request(texts=[prompt[::-1]]), **options))
            assert text == mirror[:-1][::-1] + "\n"
            texts.append(text)
        together = "".join(backward.runner.run(Request(texts=["dna", " 7", ""]), **options))
        assert together == "".join(texts)


def test_a_backward_writer_leaves_a_blank_before_the_prompt_of_words() -> None:
    words = WordTokenizer.train(["the old red barn\n"])
    the, old, red, line = words.ids("the old red \n").tolist()
    writer = TextWriter(words, [line, red, old], (), backward=True)
    assert [writer.feed(the), writer.finish()] == ["", "the "]  # "the " + "old red"
    writer = TextWriter(words, [line, red, old], ("the",), backward=True)
    assert [writer.feed(the), writer.finish()] == ["", ""]
    after_line = TextWriter(words, [line, red, old], (), backward=True)
    assert [after_line.feed(line), after_line.finish()] == ["", "\n"]


def test_fine_tuning_keeps_what_was_learnt_and_extends_the_vocabulary(model: Model, tmp_path: Path) -> None:
    more = tmp_path / "more.txt"
    more.write_text(TEXT.replace("and", "plus") + "¿y ahora? " * 30)
    model.save(tmp_path / "old.safetensors")
    tuned = api.train(
        "generate",
        train=more,
        out=tmp_path / "run",
        init=tmp_path / "old.safetensors",
        set={"train.max_steps": 1, "train.lr": 1e-9, "train.batch_size": 8, "train.k1": 20},
        quiet=True,
    )
    old, new = model.assets.vocabulary, tuned.assets.vocabulary
    assert list(new.tokens[: len(old.tokens)]) == list(old.tokens)
    assert len(new) > len(old)
    assert tuned.config.model.hidden_size == 24  # type: ignore[attr-defined]
    weight, grown = model.network.get_parameter("embedding.weight"), tuned.network.get_parameter("embedding.weight")
    assert torch.allclose(grown[: len(weight)], weight, atol=1e-6)


def test_a_trace_shows_gates_and_gradients(model: Model, tmp_path: Path) -> None:
    trace = model.trace("3 and 4 make 7")
    assert len(trace.tokens) == 14
    assert trace.gates["l0"]["f"].shape == (14, 24)
    norms = trace.gradients()
    assert norms.shape == (14, 14)
    assert norms.triu(1).abs().sum() == 0
    assert (norms.diagonal() > 0).all()
    assert trace.by_distance().shape == (14,)
    for kind, form in (("gates", "png"), ("states", "svg"), ("gradients", "pdf")):
        trace.figure(kind).savefig(tmp_path / f"{kind}.{form}")
        assert (tmp_path / f"{kind}.{form}").stat().st_size > 1000
