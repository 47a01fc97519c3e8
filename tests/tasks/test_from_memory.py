"""Every task trains, resumes, scores and answers from data in memory with the numbers that files of it give."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import soundfile
import torch
from PIL import Image

import unrolled
from tests.cli.test_generate import call
from tests.faults.test_resume import SETTINGS, TEXT
from tests.fitting import fitting
from tests.killing import KilledAt
from tests.tasks import recognition, test_classify
from tests.tasks.caption import conftest as pictures
from tests.tasks.forecast import conftest as waves
from tests.tasks.tag import conftest as chunks
from tests.tasks.translate import conftest as numbers
from unrolled import Model, UserError

SHORT: dict[str, Any] = {"train.max_steps": 4, "train.eval_every": 2, "train.threads": 1, "train.device": "cpu"}


@dataclass(frozen=True)
class Case:
    """A small run: a file, the same in memory, and settings."""

    task: str
    write: Callable[[Path], Path]
    in_memory: Callable[[Path], Any]
    settings: dict[str, Any]
    only_file: Callable[[Path], dict[str, Any]] = field(default=lambda folder: {})  # settings of the file alone


def _sentences(folder: Path) -> pd.DataFrame:
    return pd.DataFrame(test_classify.sentences(60), columns=["label", "text"])


def _frames(folder: Path) -> list[tuple[np.ndarray, str]]:
    draw = np.random.default_rng(0)
    return [(draw.normal(i % 2, 1, (3 + i % 4, 2)).astype(np.float32), "ab"[i % 2]) for i in range(24)]


def _write_frames(folder: Path) -> Path:
    rows = _frames(folder)
    arrays = np.concatenate([one for one, _ in rows]), [label for _, label in rows], [len(one) for one, _ in rows]
    np.savez(folder / "frames.npz", frames=arrays[0], labels=arrays[1], lengths=arrays[2])
    return folder / "frames.npz"


def _tagged(folder: Path) -> pl.DataFrame:
    rows = [[list(column) for column in zip(*sentence, strict=True)] for sentence in chunks.chunked()]
    return pl.DataFrame({"tokens": [words for words, _, _ in rows], "tags": [tags for _, _, tags in rows]})


def _gestures(folder: Path) -> pd.DataFrame:
    draw = np.random.default_rng(1)
    table = pd.DataFrame(draw.normal(size=(120, 2)), columns=["x", "y"])
    table["session"] = [f"s{i // 10}" for i in range(120)]
    table["gesture"] = ["up" if y > 0 else "down" for y in table["y"]]
    return table


def _waves(folder: Path) -> pd.DataFrame:
    table = pd.DataFrame(waves.waves(200), columns=["a", "b"])
    return table.set_axis(pd.date_range("2024-03-01", periods=200, freq="h", name="time"))


def _csv(make: Callable[[Path], pd.DataFrame], **options: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        make(folder).to_csv(folder / "table.csv", **options)
        return folder / "table.csv"

    return write


def _recordings(folder: Path) -> list[tuple[tuple[np.ndarray, int], str]]:
    rows = [line.split("\t") for line in (folder / "data/train.tsv").read_text().splitlines()]
    return [(soundfile.read(folder / "data" / name, dtype="float32"), text) for name, text in rows]


def _scenes(folder: Path) -> list[tuple[Any, list[str]]]:
    return [(Image.fromarray(pixels), captions) for _, pixels, captions in pictures.scenes()]


CASES = {
    "generate": Case(
        "generate",
        lambda folder: _text(folder / "sums.txt", f"{TEXT}\n"),
        lambda folder: iter(TEXT.splitlines()),
        {**SETTINGS, **SHORT},
    ),
    "classify": Case("classify", _csv(_sentences, index=False), _sentences, {**test_classify.SMALL, **SHORT}),
    "classify frames": Case(
        "classify", _write_frames, _frames, fitting("classify", {**test_classify.SMALL, **SHORT}, inputs="frames")
    ),
    "tag": Case(
        "tag", lambda folder: _text(folder / "a.txt", chunks.columns_text()), _tagged, {**chunks.SMALL, **SHORT}
    ),
    "tag frames": Case(
        "tag", _csv(_gestures, index=False), _gestures, fitting("tag", {**chunks.SMALL, **SHORT}, inputs="frames")
    ),
    "translate": Case(
        "translate",
        lambda folder: _text(folder / "n.tsv", numbers.table(numbers.numbers())),
        lambda folder: [tuple(line.split("\t")) for line in numbers.table(numbers.numbers()).splitlines()],
        {**numbers.SMALL, **SHORT},
    ),
    "recognize": Case(
        "recognize",
        lambda folder: recognition.write_recordings(folder / "data", recognition.words(20)),
        _recordings,
        fitting("recognize", {**recognition.SMALL, **SHORT}, data__kind="audio"),
    ),
    "caption": Case(
        "caption",
        lambda folder: pictures.write(folder / "scenes"),
        _scenes,
        fitting("caption", {**pictures.SMALL, "train.valid_free": 2, **SHORT}),
        lambda folder: {"data.images": str(folder / "scenes/images")},
    ),
    "forecast": Case("forecast", _csv(_waves), _waves, {**waves.SMALL, **SHORT}),
}


def _text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@dataclass(frozen=True)
class Pair:
    """The models of a file and of memory, and where they were trained."""

    case: Case
    folder: Path
    file: Path
    of_file: Model
    of_memory: Model


@pytest.fixture(scope="module", params=CASES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    case, folder = CASES[request.param], tmp_path_factory.mktemp("pair")
    file = case.write(folder)
    of_file = unrolled.train(
        case.task, train=file, out=folder / "file", set={**case.settings, **case.only_file(folder)}, quiet=True
    )
    data = case.in_memory(folder)
    of_memory = unrolled.train(case.task, train=data, out=folder / "memory", set=case.settings, quiet=True)
    return Pair(case, folder, file, of_file, of_memory)


def weights(model: Model) -> dict[str, torch.Tensor]:
    return dict(model.network.state_dict())


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def scored(model: Model, data: Any, **options: Any) -> str:
    return json.dumps(model.evaluate(data, **options), default=str)


def test_the_numbers_are_those_of_the_file(pair: Pair) -> None:
    assert rows(pair.folder / "memory") == rows(pair.folder / "file")
    theirs, ours = weights(pair.of_file), weights(pair.of_memory)
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)


def test_the_scores_are_those_of_the_file(pair: Pair) -> None:
    images = {"images": pair.folder / "scenes/images"} if pair.case.task == "caption" else {}
    assert scored(pair.of_memory, pair.case.in_memory(pair.folder)) == scored(pair.of_memory, pair.file, **images)


def test_a_run_on_data_in_memory_resumes_with_the_same_data_alone(pair: Pair) -> None:
    case, folder = pair.case, pair.folder / "killed"
    with pytest.raises(KeyboardInterrupt):
        unrolled.train(
            case.task,
            train=case.in_memory(pair.folder),
            out=folder,
            set=case.settings,
            quiet=True,
            callbacks=[KilledAt(3)],
        )
    with pytest.raises(UserError) as caught:
        unrolled.resume(folder, quiet=True)
    assert "was given from Python" in str(caught.value)
    assert f"unrolled.resume({str(folder)!r}, train=…" in str(caught.value)
    unrolled.resume(folder, train=case.in_memory(pair.folder), quiet=True)
    for name in ("best.safetensors", "last.safetensors", "metrics.jsonl", "config.toml"):
        assert (folder / name).read_bytes() == (pair.folder / "memory" / name).read_bytes(), name


def test_the_model_file_names_the_data(pair: Pair) -> None:
    about = unrolled.load(pair.folder / "memory").data
    assert about["source"].startswith("in memory: ")
    same = about["sha256"] == unrolled.load(pair.folder / "file").data["sha256"]
    assert same or pair.case.task == "recognize"  # whose recordings are known by their names


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a DataFrame."""
    folder = tmp_path_factory.mktemp("reviews") / "run"
    case = CASES["classify"]
    unrolled.train(case.task, train=_sentences(folder), out=folder, set=case.settings, quiet=True)
    return folder


def test_validation_data_may_be_an_iterator(tmp_path: Path) -> None:
    case, rows = CASES["classify"], [(text, label) for label, text in test_classify.sentences(30, seed=1)]

    def trained(name: str, valid: Any) -> Model:
        data, keys = _sentences(tmp_path), case.settings
        return unrolled.train(case.task, train=data, valid=valid, out=tmp_path / name, set=keys, quiet=True)

    of_iterator, of_list = trained("iterator", iter(rows)), trained("list", rows)
    assert of_iterator.scores == of_list.scores
    assert of_iterator.evaluate(iter(rows)) == of_iterator.evaluate(rows)
    assert of_list.data["source"] == "in memory: DataFrame with 60 rows, in memory: list of 30 pairs"


def test_the_model_file_says_how_many_rows(reviews: Path) -> None:
    model = unrolled.load(reviews)
    assert model.data["source"] == "in memory: DataFrame with 60 rows"
    assert 'train = "memory:DataFrame with 60 rows#' in (reviews / "config.toml").read_text()
    assert "memory:DataFrame with 60 rows" not in model.card()


def test_other_data_is_refused(reviews: Path) -> None:
    other = _sentences(reviews)
    other.loc[0, "text"] = "something else"
    with pytest.raises(UserError) as caught:
        unrolled.resume(reviews, train=other, quiet=True)
    assert str(caught.value) == (
        f"The data is not what {reviews} was trained on. Give the same data, or start a new run from its model: "
        f"unrolled train classify --init {reviews}"
    )


def test_the_command_line_says_where_the_data_has_to_come_from(reviews: Path, tmp_path: Path) -> None:
    code, _, errors = call("train", "--resume", reviews)
    assert code == 2
    assert errors == (
        "unrolled: The data was given from Python (DataFrame with 60 rows), and no file keeps it. Give it again from "
        f"there: unrolled.resume('{reviews}', train=…). Or write the same examples to a file and name it: "
        "--set data.train=FILE\n"
    )
    file = tmp_path / "same.csv"
    _sentences(tmp_path).to_csv(file, index=False)
    code, _, errors = call("train", "--resume", reviews, "--set", f"data.train={file}", "--quiet")
    assert code == 0, errors


def answered(pair: Pair, data: Any) -> list[str]:
    found = pair.of_memory.predict(data)
    return [str(one) for one in found]


def test_a_table_of_inputs_is_answered_row_by_row(pair: Pair) -> None:
    case, folder = pair.case, pair.folder
    data = case.in_memory(folder)
    if case.task == "forecast":
        expected = pair.of_memory.predict(data[["a", "b"]].to_numpy(), steps=3)
        assert np.array_equal(pair.of_memory.predict(data, steps=3), expected)
        return
    if case.task == "generate":
        prompts = ["12+", "7"]
        for form in (pd.DataFrame({"text": prompts}), pd.Series(prompts), iter(prompts), np.array(prompts)):
            found = pair.of_memory.predict(form, max_tokens=4, seed=1)
            assert found == pair.of_memory.predict(prompts, max_tokens=4, seed=1)
        return
    if case.in_memory is _gestures:
        frames = data[["x", "y"]].to_numpy(np.float32).reshape(12, 10, 2)
        assert answered(pair, data) == answered(pair, list(frames))
        return
    if case.in_memory is _sentences:
        assert answered(pair, data) == answered(pair, data["text"]) == answered(pair, list(data["text"]))
        assert answered(pair, pl.from_pandas(data)["text"]) == answered(pair, iter(data["text"]))
        return
    if case.in_memory is _tagged:
        assert answered(pair, data) == answered(pair, data["tokens"].to_list())
        return
    names = {"recognize": ("file", "transcript"), "caption": ("image", "captions"), "translate": ("source", "target")}
    first, second = names.get(case.task, ("frames", "label"))
    table = pd.DataFrame({first: [one for one, _ in data], second: [two for _, two in data]})
    assert answered(pair, table.head(3)) == answered(pair, [one for one, _ in data][:3])


def test_series_of_a_table_are_forecast_by_name(tmp_path: Path) -> None:
    table = pd.concat([_waves(tmp_path).assign(site=name) for name in ("north", "south")])
    table.loc[table["site"] == "south", "a"] += 5
    model = unrolled.train("forecast", train=table, out=tmp_path / "run", set=CASES["forecast"].settings, quiet=True)
    found = model.predict(table, steps=2)
    assert list(found) == ["north", "south"]
    one = table[table["site"] == "south"][["a", "b"]].to_numpy()
    assert np.array_equal(found["south"], model.predict(one, steps=2))


def test_an_iterator_beyond_the_bound_goes_through_the_token_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(name: str) -> Model:
        keys = {**CASES["generate"].settings, "data.cache": str(tmp_path / "cache")}
        return unrolled.train("generate", train=iter(TEXT.splitlines()), out=tmp_path / name, set=keys, quiet=True)

    held = trained("held")
    assert not (tmp_path / "cache").exists()
    monkeypatch.setattr("unrolled.data.memory.spool.IN_MEMORY", 100)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    spooled = trained("spooled")
    assert any((tmp_path / "cache/tokens").iterdir())
    assert all(torch.equal(one, weights(held)[name]) for name, one in weights(spooled).items())
