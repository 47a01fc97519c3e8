"""The page of a translator: the same translations as the runtime's, greedy and by beam search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import unrolled
from tests.export.web.serving import answers, exported, opened, served, settled, stored_page
from tests.runtime.folders import exported_of
from unrolled import runtime

SOURCES = ["3 5 7", "1 2", "9", "", "3 ünbekannt 猫 7", " 4  4 4 4 4 4 4 4 4 4 4"]
KINDS = [f"translate-{kind}" for kind in ("luong", "plain", "transformer")]


def same(found: list[Any], expected: list[Any]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        if not theirs.source_tokens:
            assert ours == []
            continue
        several = [theirs, *theirs.others]
        assert [one["text"] for one in ours] == [one.text for one in several]
        assert [one["ended"] for one in ours] == [one.ended for one in several]
        for one, other in zip(ours, several, strict=True):
            assert (one["score"], one["logProb"]) == pytest.approx((other.score, other.log_prob), rel=1e-3, abs=1e-3)
            assert (one["sourceTokens"], one["targetTokens"]) == (other.source_tokens, other.target_tokens)
            if other.attention is not None:
                assert one["attention"] == [pytest.approx(row, abs=1e-4) for row in other.attention.tolist()]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_translations(kind: str, page: Any) -> None:
    model = exported_of(kind)
    attends = kind != "translate-plain"
    with served(stored_page(kind)) as address:
        opened(page, address)
        for beam, n_best in ((1, 1), (5, 1), (4, 3)):
            found = answers(page, "translate", SOURCES, {"beam": beam, "nBest": n_best})
            same(found, model.predict(SOURCES, beam=beam, n_best=n_best, attention=attends))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "more",
    [
        {"data.level": "word", "data.min_count": 2},
        {"data.level": "bpe", "data.max_size": 300},
        {"data.source.level": "char", "data.target.level": "symbols", "data.source.normalize": "nfd"},
    ],
)
def test_levels(more: dict[str, Any], page: Any, tmp_path: Path) -> None:
    names = ["Ödipus", "Ångström", "猫", "한국", "Zoë"]
    rows = [f"{a} sieht {b}\t{b} wird von {a} gesehen" for a in names for b in names]
    rows += [f"{name}er schläft\tes schläft {name}er" for name in names]  # words that come once
    (tmp_path / "train.tsv").write_text("\n".join(rows))
    small = {"model.embedding_size": 12, "model.encoder.hidden_size": 12, "model.decoder.hidden_size": 12}
    keys = {**small, "train.max_steps": 60, "train.lr": 0.02, **more}
    model = unrolled.train("translate", train=tmp_path / "train.tsv", quiet=True, set=keys)
    folder = exported(model, tmp_path / "out")
    sources = ["Ödipus sieht 猫", "Zoër schläft", "Unbekannt sieht A\u030angström", "한국 한국"]
    running = runtime.load(folder)
    with served(folder) as address:
        opened(page, address)
        for beam in (1, 5):
            same(answers(page, "translate", sources, {"beam": beam}), running.predict(sources, beam=beam))


def test_translating_on_the_page(page: Any) -> None:
    with served(stored_page("translate-luong")) as address:
        opened(page, address)
        page.fill("#text", "3 5 7")
        page.press("#text", "Enter")
        page.wait_for_selector(".said")
        settled(page)
        best = exported_of("translate-luong").predict("3 5 7", n_best=3)
        assert page.inner_text(".said") == best.text
        others = page.locator(".others li").all_inner_texts()
        assert [one.split(" log-probability")[0] for one in others] == [one.text for one in best.others]
        assert page.locator("td.look").count() == len(best.source_tokens) * len(best.target_tokens)
