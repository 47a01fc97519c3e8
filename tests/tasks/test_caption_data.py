"""Pictures and captions in folders, archives and arrays."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import unrolled
from tests.tasks import test_caption
from tests.tasks.test_caption import SMALL, scenes, train
from unrolled import UserError, api
from unrolled.data.demo.glyphs import embedded_glyphs
from unrolled.tasks.caption.task import Caption

table = test_caption.table


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


def test_pictures_beside_the_table(table: Path, tmp_path: Path) -> None:
    beside = table.parent / "beside.jsonl"
    rows = (json.dumps({"image": f"images/{name}", "captions": captions}) for name, _, captions in scenes())
    beside.write_text("\n".join(rows))
    settings = {**SMALL, "train.max_steps": 2}
    model = unrolled.train("caption", train=beside, out=tmp_path / "run", set=settings, quiet=True)
    assert model.evaluate(beside)["pictures"] == 36
    assert model.evaluate((table, table.parent / "images"))["pictures"] == 36


def test_validation_pictures_are_not_trained_on(table: Path, tmp_path: Path) -> None:
    config = api.configure("caption", [], {"data.train": str(table), "data.images": str(table.parent / "images")})
    data = Caption().read(config)  # type: ignore[arg-type]
    assert len(data.train) + len(data.valid) == 36
    keys = [{one.view.values.tobytes() for one in part} for part in (data.train, data.valid)]
    assert not keys[0] & keys[1]


def test_embedded_letters_have_their_names() -> None:
    found = embedded_glyphs()
    assert len(found) > 3000
    said = {one.name: one.captions for one in found}
    assert said["ö (DejaVuSans)"] == ("latin small letter o with diaeresis",)
    values = np.stack([one.view.values for one in found if one.view.values is not None])
    assert values.shape == (len(found), 32, 32, 3)
    assert bool((values.min((1, 2, 3)) < 128).all())  # every letter is drawn
    assert float((values[:, [0, -1]] < 128).mean()) < 0.01  # and few touch the edge


def test_pictures_without_captions_are_no_training_data(table: Path) -> None:
    config = api.configure("caption", [], {"data.images": str(table.parent / "images")})
    with pytest.raises(
        UserError, match=r"images, and no captions of them. Give the captions with --train \(data.train"
    ):
        Caption().read(config)  # type: ignore[arg-type]


def test_one_picture_cannot_be_divided(table: Path, tmp_path: Path) -> None:
    one = tmp_path / "one.jsonl"
    one.write_text(json.dumps({"image": scenes()[0][0], "captions": ["a"]}))
    images = {"data.images": str(table.parent / "images")}
    with pytest.raises(UserError, match=r"one.jsonl holds one picture. Give more, or validation pictures with data.va"):
        unrolled.train("caption", train=one, out=tmp_path / "run", set={**SMALL, **images}, quiet=True)
    assert not (tmp_path / "run").exists()
