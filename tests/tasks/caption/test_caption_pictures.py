"""Pictures that caption reads: files, arrays and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import unrolled
from tests.fitting import fitting
from tests.models.test_captioner import Halves
from tests.tasks.caption.conftest import KINDS, SMALL, features, scenes, train
from unrolled import Model, UserError, api
from unrolled.data.demo.glyphs import embedded_glyphs
from unrolled.errors import Note
from unrolled.tasks.caption.run import CaptionRunner
from unrolled.tasks.caption.task import Caption
from unrolled.tasks.runner import Request


def test_pictures_beside_the_table(table: Path, tmp_path: Path) -> None:
    beside = table.parent / "beside.jsonl"
    rows = (json.dumps({"image": f"images/{name}", "captions": captions}) for name, _, captions in scenes())
    beside.write_text("\n".join(rows))
    settings = fitting("caption", {**SMALL, "train.max_steps": 2})
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


def test_saved_and_loaded_it_says_the_same(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "model.safetensors")
    loaded = unrolled.load(tmp_path / "model.safetensors")
    pixels = scenes()[3][1]
    one, two = model.predict(pixels, attention=True), loaded.predict(pixels, attention=True)
    assert (one.text, one.score) == (two.text, two.score)
    assert np.array_equal(one.attention, two.attention)


def test_an_encoder_of_ones_own(table: Path, tmp_path: Path) -> None:
    keys = {**SMALL, "train.max_steps": 60, "data.images": str(table.parent / "images")}
    settings = fitting("caption", keys, pictures="read by a network of your own")
    task = Caption(encoder=lambda shape: Halves())
    model = unrolled.train(
        "caption", train=table, valid=table, out=tmp_path / "run", set=settings, task=task, quiet=True
    )
    loaded = unrolled.load(tmp_path / "run", task=Caption(encoder=lambda shape: Halves()))
    pixels = scenes()[3][1]
    assert str(loaded.predict(pixels)) == str(model.predict(pixels))
    assert model.predict(pixels, attention=True).attention.shape[1:] == (1, 2)


def test_a_model_can_be_trained_further(model: Model, table: Path, tmp_path: Path) -> None:
    model.save(tmp_path / "first.safetensors")
    more = tmp_path / "more.jsonl"
    rows = (json.dumps({"image": name, "captions": ["one pink square"]}) for name, _, _ in scenes()[:8])
    more.write_text("\n".join(rows))
    settings = fitting("caption", {**SMALL, "train.max_steps": 2, "data.images": str(table.parent / "images")})
    start = tmp_path / "first.safetensors"
    further = api.train("caption", train=more, out=tmp_path / "run", init=start, set=settings, quiet=True)
    assert len(further.assets.target.tokenizer) == len(model.assets.target.tokenizer) + 2
    larger = [np.asarray(Image.fromarray(pixels).resize((32, 32))) for _, pixels, _ in scenes()]
    np.savez(tmp_path / "larger.npz", pictures=np.stack(larger), names=np.array([name for name, _, _ in scenes()]))
    settings["data.images"] = str(tmp_path / "larger.npz")
    other = api.train("caption", train=more, out=tmp_path / "larger", init=start, set=settings, quiet=True)
    assert other.assets.shape == model.assets.shape
    regions = np.random.default_rng(0).random((36, 4, 4, 3))
    np.savez(tmp_path / "larger.npz", regions=regions, names=np.array([name for name, _, _ in scenes()]))
    with pytest.raises(
        UserError, match=r"more.jsonl:\d+ is 4×4 regions of 3 numbers, and the model reads 16×16 pixels."
    ):
        api.train("caption", train=more, out=tmp_path / "features", init=start, set=settings, quiet=True)


def test_pictures_of_attention(model: Model, table: Path, tmp_path: Path) -> None:
    name, pixels, _ = scenes()[0]
    figure = CaptionRunner(model).drawing(table.parent / "images" / name)
    answer = model.predict(pixels)
    assert [axis.get_title() for axis in figure.axes][1 : len(answer.tokens) + 1] == answer.tokens
    figure.savefig(tmp_path / "a.png")


@pytest.mark.parametrize("kind", ["soft", *KINDS])
def test_a_caption_is_laid_open(kind: str, table: Path, tmp_path: Path) -> None:
    model = train(table, tmp_path / "run", train__max_steps=3, **KINDS.get(kind, {}))
    pixels = scenes()[0][1]
    trace = model.trace(pixels, beam=3)
    answer = model.predict(pixels, beam=3)
    assert trace.answer == str(answer)
    assert float(trace.losses.sum()) == pytest.approx(-answer.log_prob, abs=1e-3)
    if kind == "no regions":
        assert "This model has no attention to show" in trace.missing["attention"]
    else:
        looked = trace.attention["caption → picture"]
        assert looked.grid == (4, 4)
        assert looked.weights.shape[-2:] == (len(trace.losses), 16)
        shown = model.predict(pixels, beam=3, attention=True).attention
        mean = looked.weights[-1].mean(0)[:-1].reshape(-1, 4, 4)
        assert np.abs(mean.cpu().numpy() - shown).max() < 1e-5
        axes = trace.figure("attention").axes
        titles = [axis.get_title() for axis in axes if axis.get_title()]
        assert titles[: len(answer.tokens)] == answer.tokens
        assert {axis.get_ylabel() for axis in axes} - {""} == ({"weights", "looked at"} if kind == "hard" else set())
    request = Request(texts=[str(table.parent / "images" / scenes()[0][0])], format="jsonl")
    record = json.loads("".join(model.runner.run(request, beam=3)))
    assert ("looked_at" in record) == (kind == "hard")
    if kind == "hard":
        assert len(record["looked_at"]) == len(answer.tokens) > 0
        for weights, (row, column) in zip(record["attention"], record["looked_at"], strict=True):
            assert weights[row][column] == max(map(max, weights))
        labels = {axis.get_ylabel() for axis in CaptionRunner(model).drawing(pixels, beam=3).axes}
        assert labels == {"", "weights", "looked at"}
    if kind != "transformer":
        assert trace.states["l0"]["h"].shape == (len(trace.losses), 24)
    with pytest.raises(UserError, match=r"^temperature=0 is not above 0. Use 1 for the model's own distribution.$"):
        model.trace(pixels, temperature=0)


def test_features_are_drawn_over_a_picture_that_is_given(tmp_path: Path) -> None:
    table = features(tmp_path)
    model = train(table, tmp_path / "run", data__images=str(tmp_path / "features.npz"), train__max_steps=20)
    with np.load(tmp_path / "features.npz") as file:
        row = file["regions"][0]
    pixels = scenes()[0][1]
    assert len(CaptionRunner(model).drawing(row, picture=pixels).axes[0].images) == 1
    assert CaptionRunner(model).drawing(row).axes[0].get_title() != ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beams": 3}, "Unknown predict option 'beams'. Did you mean 'beam'?"),
        (
            {"unknown": "replace"},
            "Unknown words are replaced by words of a source, and a picture has none. Use forbid.",
        ),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str, model: Model) -> None:
    with pytest.raises(UserError) as error:
        model.predict(scenes()[0][1], **options)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "The input is int. Expected a path, a PIL image or an array, or a list of them."),
        (np.zeros((4, 4, 3)), "The input has shape (4, 4, 3) and type float64. Expected pixels (height, width)"),
        ("none.png", "none.png does not exist. Give the path of a"),
        ("", "No picture is given. Give the path of one."),
        (np.zeros((0, 16, 3), np.uint8), "The input is empty: 0×16 pixels. Give a picture, or leave it out."),
        (Image.new("RGB", (0, 4)), "The input is empty: 4×0 pixels. Give a picture, or leave it out."),
    ],
)
def test_inputs_that_are_no_picture(given: Any, message: str, model: Model) -> None:
    with pytest.raises(UserError) as error:
        model.predict(given)
    assert str(error.value).startswith(message)


def test_the_rest_is_described_where_a_picture_cannot_be_read(model: Model, table: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no picture")
    bad = str(tmp_path / "bad.png")
    good = [str(table.parent / "images" / scenes()[number][0]) for number in (0, 20)]
    expected = [f"{model.predict(path)}\n" for path in good]
    said: list[str] = []
    with (
        pytest.warns(Note, match=r"bad.png is not a readable picture."),
        pytest.raises(UserError, match=r"^1 of 3 inputs could not be read. The others are above.$"),
    ):
        said.extend(model.runner.run(Request(files=[good[0], bad, good[1]])))
    assert said == [expected[0], "\n", expected[1]]
    told = iter(model.runner.run(Request(files=[good[0], bad, good[1]], format="jsonl")))
    with pytest.warns(Note):
        records = [json.loads(next(told)) for _ in range(3)]
    assert (records[1]["input"], list(records[1])) == (bad, ["input", "error"])
    assert [f"{record['caption']}\n" for record in records[::2]] == expected
    with pytest.raises(UserError, match=r"bad.png is not a readable picture."):
        list(model.runner.run(Request(files=[bad])))


def test_pictures_without_captions_are_no_training_data(table: Path) -> None:
    config = api.configure("caption", [], {"data.images": str(table.parent / "images")})
    with pytest.raises(
        UserError, match=r"images, and no captions of them. Give the captions with --train \(data.train"
    ):
        Caption().read(config)  # type: ignore[arg-type]


def test_captions_that_never_end_are_said(model: Model) -> None:
    with pytest.warns(Note, match=r"^1 captions had not ended after the most tokens allowed, and were cut.$"):
        answer = model.predict(scenes()[0][1], max_tokens=2, beam=1)
    assert not answer.ended
    assert len(answer.tokens) == 2


def test_models_without_attention_show_none(table: Path, tmp_path: Path) -> None:
    model = train(table, tmp_path / "run", train__max_steps=2, model__decoder__attention="none")
    assert model.predict(scenes()[0][1], attention=True).attention is None
    with pytest.raises(
        UserError, match=r"This model has no attention to show. Train with model.decoder.attention=soft"
    ):
        CaptionRunner(model).drawing(scenes()[0][1])
    bag = tmp_path / "bag.npz"
    np.savez(bag, regions=np.zeros((36, 5, 3)))
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(json.dumps({"image": i, "captions": ["a b"]}) for i in range(36)))
    model = train(rows, tmp_path / "bag", data__images=str(bag), train__max_steps=2)
    with pytest.raises(UserError, match=r"The regions of this model form no grid to draw."):
        CaptionRunner(model).drawing(np.zeros((5, 3)))


def test_one_picture_cannot_be_divided(table: Path, tmp_path: Path) -> None:
    one = tmp_path / "one.jsonl"
    one.write_text(json.dumps({"image": scenes()[0][0], "captions": ["a"]}))
    settings = fitting("caption", {**SMALL, "data.images": str(table.parent / "images")})
    with pytest.raises(UserError, match=r"one.jsonl holds one picture. Give more, or validation pictures with data.va"):
        unrolled.train("caption", train=one, out=tmp_path / "run", set=settings, quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_task_of_another_kind(table: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^The config is for translate, the task is caption. Use those of one task.$"):
        unrolled.train("translate", task=Caption(), out=tmp_path / "run", quiet=True)
