"""Gradients, runs and weights of generate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import unrolled
from tests.tasks.generate.conftest import SMALL, TEXT, small
from unrolled import Model, UserError, api
from unrolled.models import LanguageModelSettings, language_model, stepper_for
from unrolled.models.language import RecurrentLM
from unrolled.tasks import TASKS
from unrolled.tasks.generate.config import GenerateConfig


def test_gradients_agree_with_autograd_by_hand(model: Model) -> None:
    trace = model.trace("3 and 4")
    network = model.network
    assert isinstance(network, RecurrentLM)
    ids = torch.tensor([[int(model.assets.ids("\n")[0]), *model.assets.ids("3 and 4").tolist()]])
    inputs = network.embedding(ids[:, :-1])
    state: Any = None
    states: list[Any] = []
    losses: list[Any] = []
    for t in range(7):
        _, (h, c) = network.layer(inputs[:, t : t + 1], state)
        h.retain_grad()
        states.append(h)
        # the head reads the same h that the next step reads
        scores = network.scores(h[-1])
        losses.append(torch.nn.functional.cross_entropy(scores, ids[:, t + 1]))
        state = (h, c)
    losses[5].backward(retain_graph=True)
    expected = torch.tensor([float(h.grad.norm()) if h.grad is not None else 0.0 for h in states])
    assert torch.allclose(trace.gradients()[5], expected, rtol=1e-3, atol=1e-7)


@pytest.mark.usefixtures("with_curves")
def test_the_run_folder_has_what_scripts_rely_on(book: Path, tmp_path: Path) -> None:
    small(book, tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"config.toml", "best.safetensors", "last.safetensors", "metrics.jsonl", "curves.png"} <= names


def test_a_run_never_overwrites_another(book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    keys = {**SMALL, "train.max_steps": 1}
    api.train("generate", train=book, set=keys, quiet=True)
    api.train("generate", train=book, set=keys, quiet=True)
    assert sorted(path.name for path in Path("runs").iterdir()) == ["generate-1", "generate-2"]
    with pytest.raises(UserError, match="exists already"):
        api.train("generate", train=book, out="runs/generate-1", set=keys, quiet=True)
    with pytest.raises(UserError, match=r"runs exists and is not a run folder\. Choose another --out\."):
        api.train("generate", train=book, out="runs", set=keys, quiet=True)


def test_embedded_text_is_what_runs_without_data(tmp_path: Path, capfd: Any) -> None:
    keys = {**SMALL, "train.max_steps": 1}
    api.train("generate", out=tmp_path / "run", set=keys)
    said = capfd.readouterr().err
    assert "pydoc_data.topics" in said
    assert "compare with nothing" in said


class TestStopping:
    def test_patience(self, book: Path, tmp_path: Path) -> None:
        keys = {**SMALL, "train.lr": 1e-12, "train.eval_every": 1, "train.patience": 2, "train.max_steps": 50}
        api.train("generate", train=book, out=tmp_path / "run", set=keys, quiet=True)
        rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
        assert len(rows) < 50

    def test_non_finite_names_step_and_layer_and_keeps_the_last_good_model(self, book: Path, tmp_path: Path) -> None:
        keys = {
            **SMALL,
            "train.optimizer": "sgd",
            "train.lr": 1e20,
            "train.clip_norm": None,
            "train.warmup_steps": 0,
            "train.eval_every": 1,
            "model.cell": "rnn",
            "model.nonlinearity": "relu",
        }
        with pytest.raises(
            UserError,
            match=r"Training became non-finite at step \d+: .* first in the (value|gradient|output) of [a-z]+",
        ):
            api.train("generate", train=book, out=tmp_path / "run", set=keys, quiet=True)

    def test_clipping_lets_a_diverging_rnn_train(self, book: Path, tmp_path: Path) -> None:
        """The same ReLU network, started badly, with and without rescaling by norm."""
        keys = {
            **SMALL,
            "model.cell": "rnn",
            "model.nonlinearity": "relu",
            "model.hidden_size": 64,
            "model.init": "identity",
            "train.optimizer": "sgd",
            "train.lr": 2.0,
            "train.k1": 60,
            "train.max_steps": 60,
            "train.warmup_steps": 0,
            "train.schedule": "constant",
        }
        with pytest.raises(UserError, match="non-finite"):
            api.train("generate", train=book, out=tmp_path / "wild", set={**keys, "train.clip_norm": None}, quiet=True)
        tamed = api.train(
            "generate", train=book, out=tmp_path / "tamed", set={**keys, "train.clip_norm": 0.25}, quiet=True
        )
        assert tamed.scores["nats_per_token"] < 2.6


class TestModels:
    @pytest.mark.parametrize("kind", ["recurrent", "feedforward"])
    def test_stepping_equals_running(self, kind: Any) -> None:
        network = language_model(LanguageModelSettings(kind=kind, hidden_size=8, num_layers=2), 11, 3).eval()
        ids = torch.randint(0, 11, (2, 9))
        scores, _ = network(ids)
        state = network.start(None)
        for t in range(9):
            step = network.step(ids[:, t], state)
            state = step.state
            assert torch.allclose(step.log_probs, scores[:, t].log_softmax(-1), atol=1e-5)

    @pytest.mark.parametrize("weights", ["fp32", "fp16", "int8"])
    def test_packed_weights_step_as_the_network_does(self, weights: str) -> None:
        network = language_model(LanguageModelSettings(hidden_size=32, num_layers=2), 11, 3).eval()
        if weights != "fp32" and "native" not in unrolled.kernels.ENGINES:
            pytest.skip("the native engine is not built")
        packed = stepper_for(network, 2, weights)
        state, expected_state = packed.start(None), network.start(None)
        for tokens in torch.randint(0, 11, (20, 2)):
            step, expected = packed.step(tokens, state), network.step(tokens, expected_state)
            state, expected_state = step.state, expected.state
            bound = {"fp32": 1e-5, "fp16": 1e-3, "int8": 3e-2}[weights]
            assert (step.log_probs - expected.log_probs).abs().max() < bound

    def test_packed_weights_are_for_few_rows(self) -> None:
        network = language_model(LanguageModelSettings(hidden_size=8), 11, 3)
        with pytest.raises(UserError) as error:
            stepper_for(network, 9, "int8")
        assert str(error.value) == (
            "weights='int8' is for writing up to 8 texts at once with a recurrent model on a CPU. Use weights='fp32'."
        )

    @pytest.mark.parametrize("kind", ["recurrent", "feedforward"])
    def test_prefill_equals_stepping_on_ragged_prompts(self, kind: Any) -> None:
        network = language_model(LanguageModelSettings(kind=kind, hidden_size=8, num_layers=2), 11, 3).eval()
        ids, lengths = torch.randint(0, 11, (3, 6)), torch.tensor([6, 1, 4])
        step = network.prefill(ids, lengths, None)
        follow = network.step(torch.tensor([1, 2, 3]), step.state)
        for row in range(3):
            alone = network.prefill(ids[row : row + 1, : lengths[row]], lengths[row : row + 1], None)
            after = network.step(torch.tensor([row + 1]), alone.state)
            assert torch.allclose(step.log_probs[row], alone.log_probs[0], atol=1e-5)
            assert torch.allclose(follow.log_probs[row], after.log_probs[0], atol=1e-5)

    def test_a_feed_forward_model_sees_k_tokens_and_no_more(self) -> None:
        network = language_model(LanguageModelSettings(kind="feedforward", context=3, hidden_size=8), 11, 3).eval()
        a, b = torch.tensor([[1, 2, 3, 4, 5]]), torch.tensor([[9, 8, 3, 4, 5]])
        assert torch.equal(network(a)[0][:, -1], network(b)[0][:, -1])
        assert not torch.equal(network(a)[0][:, -2], network(b)[0][:, -2])

    def test_averaging_loses_the_order(self) -> None:
        settings = LanguageModelSettings(kind="feedforward", context=3, context_mode="average", hidden_size=8)
        network = language_model(settings, 11, 3).eval()
        a, b = network(torch.tensor([[1, 2, 5]]))[0], network(torch.tensor([[5, 1, 2]]))[0]
        assert torch.allclose(a[:, -1], b[:, -1], atol=1e-6)

    def test_tied_weights_are_one(self) -> None:
        network = language_model(LanguageModelSettings(tied=True, hidden_size=8, embedding_size=None), 11, 3)
        assert isinstance(network, RecurrentLM)
        assert network.scores.weight is network.embedding.weight
        with pytest.raises(UserError) as error:
            language_model(LanguageModelSettings(tied=True, hidden_size=8, embedding_size=4), 11, 3)
        assert str(error.value) == (
            "model.tied=true needs embeddings as wide as the last layer: 4 and 8. Use model.embedding_size=8."
        )


def test_the_config_of_a_file_is_a_task(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text('task = "generate"\n[model]\nhidden_size = 9\n')
    config = api.configure(path, ["train.seed=3"])
    assert isinstance(config, GenerateConfig)
    assert (config.model.hidden_size, config.train.seed) == (9, 3)
    assert {"generate", "tag"} <= set(TASKS)


def test_check_runs_one_update_and_counts(book: Path) -> None:
    facts = api.check("generate", [f"{k}={v}" for k, v in SMALL.items()], {"data.train": str(book)}).facts
    assert facts["train tokens"] + facts["valid tokens"] == len(TEXT)
    assert facts["updates"].startswith("60 ")
    json.dumps(facts)


@pytest.mark.parametrize("level", ["char", "word", "bpe"])
def test_writes_only_listed_words(book: Path, tmp_path: Path, level: str) -> None:
    model = small(book, tmp_path / "run", data__level=level)
    options: dict[str, Any] = {"max_tokens": 60, "seed": 3, "temperature": 1.0}
    text = model.predict("1 ", words=("and", "m"), **options)
    found = set("".join(c if c.isalpha() else " " for c in text.lower()).split())
    assert found <= ({"and", "m", "an", "a"} if level != "word" else {"and"})  # the last may be cut off
    assert found
    free = model.predict("1 ", **options)
    assert any(word not in free for word in found) or free != text
    (tmp_path / "words.txt").write_text("and\nm\n")
    assert model.predict("1 ", words=str(tmp_path / "words.txt"), **options) == text


def test_backward_models_keep_to_no_list(book: Path, tmp_path: Path) -> None:
    model = small(book, tmp_path / "run", data__direction="backward")
    with pytest.raises(UserError) as error:
        model.predict("1", words=("and",))
    assert str(error.value) == (
        "A backward model writes words from their end: it cannot keep to a list. "
        "Train with data.direction=forward, or leave out --words."
    )
