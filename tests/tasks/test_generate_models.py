"""Model files and configs of `generate`, and lists of words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import unrolled
from tests.tasks import test_generate
from tests.tasks.test_generate import small
from unrolled import UserError, api
from unrolled.models import LanguageModelSettings, language_model, stepper_for
from unrolled.models.language import RecurrentLM
from unrolled.tasks import TASKS
from unrolled.tasks.generate.config import GenerateConfig

book = test_generate.book


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
