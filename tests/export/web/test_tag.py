"""The page of a tagger answers as the runtime does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import unrolled
from tests.export.web.serving import TEXTS, answers, exported, opened, served, settled, stored_page
from tests.runtime.folders import exported_of
from unrolled import runtime

SENTENCES = [
    *TEXTS,
    "Ada met Grace Hopper in New York .",
    "See https://x.y/a?b=1, @ada or #news (mail a.b@c.org). www.a.b! http://e.x/(y) ok:#x @猫 e\u0301#é",
]


def same(found: list[Any], expected: list[Any]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert [(one["word"], one["tag"]) for one in ours] == [(word, tag) for word, tag, _ in theirs]
        assert [one["probability"] for one in ours] == pytest.approx([share for _, _, share in theirs], abs=1e-4)


@pytest.mark.parametrize("kind", ["tag-crf", "tag-softmax"])
def test_tags_and_probabilities(kind: str, page: Any) -> None:
    with served(stored_page(kind)) as address:
        opened(page, address)
        found = answers(page, "tag", SENTENCES)
    same(found, exported_of(kind).predict(SENTENCES, probabilities=True))


def test_tags_without_spans(page: Any, tmp_path: Path) -> None:
    nouns = ("Katze", "Maus", "Straße", "Ära", "Ente", "Eule")
    sentences = [(("Die", "DET"), (noun, "NOUN"), ("schläft", "VERB"), (".", "PUNCT")) for noun in nouns]
    blocks = ["".join(f"{word}\t{tag}\n" for word, tag in sentence) for sentence in sentences]
    (tmp_path / "train.txt").write_text("\n".join(blocks))
    keys = {"model.hidden_size": 4, "model.embedding_size": 4, "train.max_steps": 20}
    model = unrolled.train("tag", train=tmp_path / "train.txt", quiet=True, set=keys)
    folder = exported(model, tmp_path / "out")
    expected = runtime.load(folder).predict(SENTENCES, probabilities=True)
    with served(folder) as address:
        opened(page, address)
        same(answers(page, "tag", SENTENCES), expected)


def test_the_tags_follow_the_text(page: Any) -> None:
    text = "Ada met <i>Grace</i> Hopper"
    expected = exported_of("tag-crf").predict(text, probabilities=True)
    with served(stored_page("tag-crf")) as address:
        opened(page, address)
        page.fill("#text", text)
        settled(page)
        assert page.locator(".chip").all_inner_texts() == [word for word, _, _ in expected]
        assert page.locator(".chips .tag").all_inner_texts() == [tag for _, tag, _ in expected]
        assert page.get_attribute(".chips li", "title") == f"{expected[0][1]}: {100 * expected[0][2]:.1f} %"
