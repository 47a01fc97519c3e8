"""`caption` from Python: it learns where and what, searches, scores, and what goes in broken is said."""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import unrolled
from tests.tasks.caption.conftest import KINDS, features, scenes, train
from unrolled import Model, UserError
from unrolled.data.batching.ragged import Ragged
from unrolled.metrics.captions import caption_scores
from unrolled.tasks.caption.assets import CaptionAssets
from unrolled.tasks.caption.batches import view_batch
from unrolled.tasks.caption.config import CaptionConfig
from unrolled.tasks.caption.task import Caption
from unrolled.tasks.shared.side import with_targets
from unrolled.tasks.shared.targets import real_tokens


def test_it_learns_and_says_how_well(model: Model, table: Path) -> None:
    scores = model.evaluate(table)
    assert scores["exact_match"] > 0.9
    assert scores["bleu1"] >= scores["bleu2"] >= scores["bleu3"] >= scores["bleu4"] > 80
    assert scores["chrf"] > 90
    assert scores["cider"] > 5
    assert scores["bleu_signature"].startswith("nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert (scores["pictures"], scores["captions"], scores["not_ended"]) == (36, 72, 0)
    assert json.loads(json.dumps(scores)) == scores
    assert Caption().traits(CaptionConfig(), model.assets).goal.metric == "cider"


def test_scores_are_those_of_the_captions_it_writes(model: Model, table: Path) -> None:
    paths = [table.parent / "images" / name for name, _, _ in scenes()]
    texts = [str(answer) for answer in model.predict(paths)]
    expected = asdict(caption_scores(texts, [captions for _, _, captions in scenes()]))
    found = model.evaluate(table)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_learns(kind: str, tmp_path: Path) -> None:
    """Guessing among the twelve things that can be seen would be right once in twelve."""
    table = features(tmp_path)
    images = str(tmp_path / "features.npz")
    model = train(
        table, tmp_path / "run", data__images=images, train__max_steps=250, train__eval_every=250, **KINDS[kind]
    )
    assert model.evaluate(table)["exact_match"] > (0.4 if kind == "hard" else 0.75)


@pytest.mark.parametrize("vectors", [False, True])
def test_features_of_regions_or_one_vector(vectors: bool, tmp_path: Path) -> None:
    table = features(tmp_path, vectors=vectors)
    images = str(tmp_path / "features.npz")
    model = train(table, tmp_path / "run", data__images=images, train__max_steps=250, train__eval_every=250)
    assert model.evaluate(table)["exact_match"] > 0.9
    network: Any = model.network
    assert network.attends == (not vectors)
    loaded = unrolled.load(tmp_path / "run")
    with np.load(images) as file:
        rows = list(file["vectors" if vectors else "regions"])
    assert [str(a) for a in loaded.predict(rows[:5])] == [str(a) for a in model.predict(rows[:5])]
    wrong = rows[0][..., :3] if vectors else rows[0][:3]
    with pytest.raises(
        UserError, match=r"^The input is .* and the model reads .* Compute its features like those in tr"
    ):
        model.predict(wrong)
    with pytest.raises(
        UserError, match=r"features.npz holds several pictures. Give a list with the path or array of e"
    ):
        model.predict(images)


def test_every_word_has_a_map(model: Model, table: Path) -> None:
    for name, _, _ in scenes()[::5]:
        answer = model.predict(table.parent / "images" / name, attention=True)
        assert answer.attention.shape == (len(answer.tokens), 4, 4)
        assert answer.attention.sum((1, 2)) == pytest.approx(1.0, abs=1e-5)


def test_batched_is_single_and_the_search_says_what_the_loss_says(model: Model) -> None:
    pictures = [pixels for _, pixels, _ in scenes()][::7]
    assets: CaptionAssets = model.assets
    together = model.predict(pictures, beam=4, n_best=3)
    for pixels, answer in zip(pictures, together, strict=True):
        alone = model.predict(pixels, beam=4, n_best=3)
        assert [str(d) for d in (alone, *alone.others)] == [str(d) for d in (answer, *answer.others)]
        batch = with_targets(view_batch([_view(pixels)]), assets.target, Ragged.of([assets.target.ids(str(answer))]))
        batch = batch.to("cpu")
        with torch.no_grad():
            network: Any = model.network.eval()
            real = real_tokens(batch)
            scores = network.scores(network(batch).features[real])
        loss = torch.nn.functional.cross_entropy(scores, batch.targets[real], reduction="sum")
        assert answer.log_prob == pytest.approx(-float(loss), abs=1e-3)


def _view(pixels: NDArray[np.uint8]) -> Any:
    from unrolled.data.signals.views import View

    return View(pixels)


def test_samples_obey_the_options(model: Model) -> None:
    pictures = [pixels for _, pixels, _ in scenes()][::7]
    words = ("a", "top", "square")
    answers = model.predict(pictures, temperature=1.0, seed=3, n_best=3, prefix="a", words=words, attention=True)
    for answer in answers:
        drawn = [answer, *answer.others]
        assert len(drawn) == 3
        for one in drawn:
            assert one.tokens[0] == "a"
            assert set(one.tokens) <= set(words)
            assert one.attention.shape == (len(one.tokens), 4, 4)
    with pytest.raises(UserError, match=r"^The prefix has 'yellow', which the model does not know."):
        model.predict(pictures[0], prefix="a yellow")
    with pytest.raises(UserError, match=r"^beam is for a search, and with a temperature outputs are drawn."):
        model.predict(pictures[0], temperature=1.0, beam=3)


def test_paths_images_and_arrays_are_the_same_picture(model: Model, table: Path) -> None:
    name, pixels, _ = scenes()[5]
    path = table.parent / "images" / name
    said = {str(model.predict(one)) for one in (path, str(path), Image.fromarray(pixels), pixels)}
    assert len(said) == 1
    large = Image.fromarray(pixels).resize((64, 64), Image.Resampling.NEAREST)
    assert str(model.predict(large)) == said.pop()
    assert model.embed(pixels).shape == (24,)
    assert model.embed([pixels, pixels]).shape == (2, 24)


def test_a_zip_a_folder_and_arrays_train_the_same_model(table: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as file:
        for name, _, _ in scenes():
            file.write(table.parent / "images" / name, f"inner/{name}")
    names = np.array([name for name, _, _ in scenes()])
    np.savez(tmp_path / "images.npz", pictures=np.stack([pixels for _, pixels, _ in scenes()]), names=names)
    tsv = tmp_path / "captions.tsv"
    tsv.write_text("".join(f"{name}\t{text}\n" for name, _, captions in scenes() for text in captions))
    models = [
        train(file, tmp_path / f"run{i}", data__images=str(images), train__max_steps=2)
        for i, (file, images) in enumerate(
            (
                (table, table.parent / "images"),
                (table, tmp_path / "images.zip"),
                (table, tmp_path / "images.npz"),
                (tsv, tmp_path / "images.zip"),
            )
        )
    ]
    for other in models[1:]:
        for a, b in zip(models[0].network.parameters(), other.network.parameters(), strict=True):
            assert torch.equal(a, b)
