"""The model card, read back by huggingface_hub: header, scores and words."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest

import unrolled
from tests.cli.test_generate import call
from unrolled import UserError, api
from unrolled.hub import CardFacts, CardOptions, make_card
from unrolled.jobs import TrainingJob
from unrolled.model import Model
from unrolled.tasks.contract import Description

STORED = sorted((Path(__file__).parent.parent / "compat" / "2026-11").glob("*.safetensors"))
PIPELINES = {
    "caption": "image-to-text",
    "classify": "text-classification",
    "forecast": "time-series-forecasting",
    "generate": "text-generation",
    "recognize": "automatic-speech-recognition",
    "recognize-lines": "image-to-text",
    "recognize-transformer": "image-to-text",
    "tag": "token-classification",
    "translate": "translation",
}


def read(card: str) -> Any:
    """The card as the hub's client reads it."""
    return huggingface_hub.ModelCard(card)


def scores_of(model: Model) -> dict[str, float]:
    """The scores of a model, without the number of tokens that they are of."""
    return {name: value for name, value in model.scores.items() if name != "tokens"}


@pytest.fixture(scope="module")
def model(run: Path) -> Model:
    return unrolled.load(run)


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_the_hub_reads_the_card_of_every_task(path: Path) -> None:
    model = unrolled.load(path)
    card = read(model.card(name="anna/mine"))
    task = model.task.name
    assert card.data.library_name == "unrolled"
    assert card.data.pipeline_tag == PIPELINES.get(path.stem, PIPELINES[task])
    assert card.data.tags[:2] == ["unrolled", task]
    assert (card.data.license, card.data.datasets, card.data.language) == (None, None, None)
    assert card.data.model_name == "mine"
    assert {result.metric_type: result.metric_value for result in card.data.eval_results or ()} == scores_of(model)
    assert "The model file does not say which data it was trained on." in card.text
    assert f"unrolled run hub:anna/mine {model.task.description.usage(model).command}\n" in card.text
    assert "No licence is stated." in card.text


def test_a_card_says_what_a_run_knows(model: Model, book: Path) -> None:
    given: dict[str, Any] = {
        "name": "anna/book",
        "licence": "cc-by-4.0",
        "language": ["en", "de"],
        "datasets": ["anna/sums"],
    }
    card = read(model.card(**given))
    assert card.data.to_dict() | {"model-index": None} == {
        "library_name": "unrolled",
        "license": "cc-by-4.0",
        "language": ["en", "de"],
        "datasets": ["anna/sums"],
        "pipeline_tag": "text-generation",
        "tags": ["unrolled", "generate", "lstm"],
        "model-index": None,
    }
    results = card.data.eval_results or []
    assert {result.metric_type: result.metric_value for result in results} == scores_of(model)
    assert {result.dataset_name for result in results} == {"validation data of book.txt"}
    assert f"`{model.data['sha256']}`" in card.text
    assert str(book.parent) not in card.text
    config = tomllib.loads(card.text.split("```toml\n")[1].split("```")[0])
    assert config["data"]["train"] == "book.txt"
    assert config["model"]["hidden_size"] == 12


def test_models_of_frames(tmp_path: Path) -> None:
    frames = np.random.default_rng(0).standard_normal((8, 3, 2)).astype(np.float32)
    np.savez(tmp_path / "classify.npz", frames=frames, labels=np.array(["a", "b"] * 4))
    np.savez(tmp_path / "tag.npz", frames=frames.reshape(24, 2), labels=np.array(["a", "b"] * 12), lengths=[3] * 8)
    for task in ("classify", "tag"):
        job = TrainingJob(api.configure(task, [], {"data.train": str(tmp_path / f"{task}.npz")}))
        card = read(job.model.card())
        assert card.data.pipeline_tag is None
        assert "frames of shape (2,)" in card.text.replace("frame of", "frames of")
        assert "unrolled run model.safetensors frames.npz\n" in card.text


def test_a_task_of_ones_own(model: Model) -> None:
    facts = CardFacts("mine", Description().usage(model), 1, model.config, {"accuracy": 0.5}, {}, {})
    card = read(make_card(facts, CardOptions()))
    assert card.data.pipeline_tag is None
    assert card.data.eval_results[0].task_type == "mine"
    assert "which is not one of unrolled's own." in card.text


def test_the_hash_is_that_of_the_data(run: Path, book: Path, tmp_path: Path, model: Model) -> None:
    other = tmp_path / "elsewhere.txt"
    hashes = {}
    for name, text in {"same": book.read_text(), "other": book.read_text() + "1 and 1 make 2\n"}.items():
        other.write_text(text)
        settings = {"train.max_steps": 1, "model.hidden_size": 4, "train.k1": 20}
        trained = unrolled.train("generate", train=other, out=tmp_path / name, set=settings, quiet=True)
        assert trained.data["source"] == "elsewhere.txt"
        hashes[name] = trained.data["sha256"]
    assert hashes["same"] == model.data["sha256"] != hashes["other"]


def test_saving_a_loaded_model_keeps_its_data(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "again.safetensors")
    assert unrolled.load(tmp_path / "again.safetensors").data == model.data
    old = unrolled.load(STORED[0])
    assert old.data == {}
    old.save(tmp_path / "old.safetensors")
    assert unrolled.load(tmp_path / "old.safetensors").data == {}


def test_scores_that_are_no_numbers_are_left_out(model: Model) -> None:
    usage = model.task.description.usage(model)
    scores = {"perplexity": float("inf"), "accuracy": 0.5}
    card = read(make_card(CardFacts("generate", usage, 1, model.config, scores, {}, {}), CardOptions()))
    assert [(result.metric_type, result.metric_value) for result in card.data.eval_results or ()] == [("accuracy", 0.5)]
    empty = make_card(CardFacts("generate", usage, 1, model.config, {}, {}, {}), CardOptions())
    assert "The model file holds no scores." in empty
    assert read(empty).data.eval_results is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"licence": "Apache 2"},
            "The licence 'Apache 2' is not an identifier. Expected one such as apache-2.0, mit or other.",
        ),
        (
            {"language": ["german"]},
            "The language 'german' is not a code. Expected two or three letters, such as de.",
        ),
        ({"language": "de"}, "language='de' is one text. Give a list: language=['de']."),
        ({"datasets": ["a b"]}, "'a b' is not the name of a dataset. Expected ORG/NAME of the hub."),
    ],
)
def test_mistakes(model: Model, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as raised:
        model.card(**given)
    assert str(raised.value) == message


def test_the_command_writes_the_card_alone(run: Path, model: Model, tmp_path: Path) -> None:
    words = ("--licence", "mit", "--language", "en", "--dataset", "anna/sums", "--name", "hub:anna/book")
    expected = model.card(name="anna/book", licence="mit", language=["en"], datasets=["anna/sums"])
    assert call("card", run, *words)[:2] == (0, expected)
    out = tmp_path / "README.md"
    assert call("card", run, *words, "--out", out) == (0, "", f"Wrote {out}.\n")
    assert out.read_text() == expected
    assert call("card", run, "--out", out)[::2] == (
        2,
        f"unrolled: {out} exists already. Choose another name, or overwrite it with --force.\n",
    )
    assert out.read_text() == expected
    assert call("card", run, "--out", out, "--force")[0] == 0
    assert out.read_text() == model.card()
