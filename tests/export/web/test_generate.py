"""The page of a model that writes: the same text as the runtime's, greedy and drawn, at every level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import unrolled
from tests.export.web.serving import answers, exported, opened, served, settled, stored_page
from tests.runtime.folders import exported_of, model_of
from unrolled import runtime

PROMPTS = ["", "3 and 4", "1", "ünknown 猫 and 7\n", "3 and 4 make 7\n5 and 5 make 10\n2 and"]
STORED = ["generate-gru", "generate-bpe", "generate-transformer"]


@pytest.mark.parametrize("kind", STORED)
def test_the_same_text(kind: str, page: Any) -> None:
    model = exported_of(kind)
    with served(stored_page(kind)) as address:
        opened(page, address)
        greedy = answers(page, "generate", PROMPTS, {"temperature": 0, "maxTokens": 40})
        drawn = answers(page, "generate", PROMPTS, {"temperature": 0.7, "maxTokens": 60, "seed": 2**40 + 5})
        nucleus = answers(page, "generate", PROMPTS, {"topP": 0.6, "maxTokens": 60, "seed": 0})
    for ours, options in (
        (greedy, {"temperature": 0, "max_tokens": 40}),
        (drawn, {"temperature": 0.7, "max_tokens": 60, "seed": 2**40 + 5}),
        (nucleus, {"top_p": 0.6, "max_tokens": 60, "seed": 0}),
    ):
        # each prompt alone: of several, every one has its own seed
        assert [one["text"] for one in ours] == [model.predict(prompt, **options) for prompt in PROMPTS]
    for ours in greedy:
        assert len(ours["probabilities"]) == 40
        assert all(0 < one <= 1 for one in ours["probabilities"])


@pytest.mark.parametrize(
    ("level", "more"),
    [
        ("symbols", {"data.lowercase": True}),
        ("word", {"data.direction": "backward"}),
        ("bpe", {"data.direction": "backward", "data.lowercase": True, "data.max_size": 300}),
    ],
)
def test_levels_and_directions(level: str, more: dict[str, Any], page: Any, tmp_path: Path) -> None:
    lines = [f"Die Straße № {a} führt nach Ὀδυσσεύς {b} 猫 👩‍🚀 ÄÖÜ" for a in range(8) for b in range(8)]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    keys = {"data.level": level, "model.hidden_size": 8, "model.embedding_size": 8, "train.max_steps": 10, **more}
    model = unrolled.train("generate", train=tmp_path / "text.txt", quiet=True, set=keys)
    folder = exported(model, tmp_path / "out")
    prompts = ["", "Die Straße", "ΌΔΥΣΣΕΎΣ 3 führt", "neu\nnach "]
    running = runtime.load(folder)
    with served(folder) as address:
        opened(page, address)
        for ours, theirs in (
            ({"temperature": 0, "maxTokens": 25}, {"temperature": 0, "max_tokens": 25}),
            ({"maxTokens": 50, "seed": 7}, {"max_tokens": 50, "seed": 7}),
        ):
            found = [one["text"] for one in answers(page, "generate", prompts, ours)]
            assert found == [running.predict(prompt, **theirs) for prompt in prompts]


@pytest.mark.parametrize("weights", ["int8", "fp16"])
def test_smaller_weights(weights: str, page: Any, tmp_path: Path) -> None:
    folder = exported(model_of("generate-bpe"), tmp_path / "out", weights)
    with served(folder) as address:
        opened(page, address)
        found = [one["text"] for one in answers(page, "generate", PROMPTS, {"temperature": 0, "maxTokens": 30})]
    assert found == [runtime.load(folder).predict(prompt, temperature=0, max_tokens=30) for prompt in PROMPTS]


def test_writing_on_the_page(page: Any) -> None:
    model = exported_of("generate-gru")
    with served(stored_page("generate-gru")) as address:
        opened(page, address)
        page.fill("#text", "3 and <b>4</b>")
        page.fill("#tokens", "30")
        page.fill("#seed", "3")
        page.click("button.main")
        settled(page)
        expected = model.predict("3 and <b>4</b>", max_tokens=30, seed=3)
        assert page.text_content("#written") == "3 and <b>4</b>" + expected
        assert page.locator(".token").count() == 30
        assert page.inner_text("#status").startswith("30 tokens in ")
        page.focus("#written")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        picked = page.locator(".token.picked")
        assert picked.get_attribute("title") == page.inner_text("#choices dd.chosen .share")
        assert page.locator("#choices dt.chosen").count() == 1
        page.fill("#temperature", "-1")
        page.click("button.main", force=True)
        assert page.eval_on_selector("#temperature", "field => field.validity.valid") is False


def test_stopping(page: Any) -> None:
    with served(stored_page("generate-gru")) as address:
        opened(page, address)
        page.fill("#tokens", "100000")
        page.click("button.main")
        page.wait_for_selector(".token")
        page.click("#stop")
        settled(page)
        assert 0 < page.locator(".token").count() < 100_000
        assert page.is_enabled("button.main")
