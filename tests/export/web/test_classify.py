"""The page of a classifier answers as the runtime does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import unrolled
from tests.export.web.serving import TEXTS, answers, exported, opened, served, settled, stored_page
from tests.runtime.folders import exported_of
from unrolled import runtime


@pytest.mark.parametrize("kind", ["classify", "classify-letters", "classify-linear", "classify-wide"])
def test_probabilities(kind: str, page: Any) -> None:
    expected = exported_of(kind).predict(TEXTS)
    with served(stored_page(kind)) as address:
        opened(page, address)
        found = answers(page, "classify", TEXTS)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours["labels"] == list(theirs.labels)
        assert ours["probabilities"] == pytest.approx(list(theirs.probabilities.values()), abs=1e-4)


def test_the_answer_follows_the_text(page: Any) -> None:
    texts = ["one fine two three", "dull and <b>dull</b>"]
    with served(stored_page("classify")) as address:
        opened(page, address)
        assert page.title() == "unrolled classify"
        assert "2 labels" in page.inner_text("#facts")
        for text in texts:
            page.fill("#text", text)
            settled(page)
            expected = exported_of("classify").predict(text)
            shown = sorted(expected.probabilities.items(), key=lambda one: -one[1])
            assert page.inner_text("#answer .said") == expected.label
            assert page.locator(".bars dt").all_inner_texts() == [label for label, _ in shown]
            assert page.locator(".bars .share").all_inner_texts() == [f"{100 * share:.1f} %" for _, share in shown]
            assert page.inner_text("#status").startswith("answered in ")


def test_several_labels_and_numbers(page: Any, tmp_path: Path) -> None:
    rows = [(f"{a} and {b}", a, b) for a in ("red", "blue", "grün") for b in ("cat", "dog")] * 4
    (tmp_path / "several.tsv").write_text("".join(f"{a},{b}\t{text}\n" for text, a, b in rows))
    (tmp_path / "number.tsv").write_text("".join(f"{len(text)}\t{text}\n" for text, _, _ in rows))
    small = {"model.hidden_size": 4, "train.max_steps": 20}
    for kind, more in (("several", {"data.multi_label": True}), ("number", {"data.kind": "number"})):
        model = unrolled.train("classify", train=tmp_path / f"{kind}.tsv", quiet=True, set={**small, **more})
        folder = exported(model, tmp_path / kind)
        texts = ["red and dog", "grün", "a cat"]
        expected = runtime.load(folder).predict(texts)
        with served(folder) as address:
            opened(page, address)
            found = answers(page, "classify", texts)
            page.fill("#text", texts[0])
            settled(page)
            said = page.inner_text("#answer .said")
        if kind == "number":
            assert [one["value"] for one in found] == pytest.approx([float(one) for one in expected], rel=1e-4)
            assert float(said.replace("−", "-")) == pytest.approx(float(expected[0]), rel=1e-4)
        else:
            assert [tuple(one["labels"]) for one in found] == [one.labels for one in expected]
            assert said == (", ".join(expected[0].labels) or "no label")
