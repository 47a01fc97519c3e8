"""`unrolled.ray`: answers on Ray are those of `unrolled run`, also where a node of three is killed midway."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import unrolled.ray
from tests.tasks.recognition import words, write_recordings
from unrolled.data.batching.token_cache import TokenCache
from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.search import NGram
from unrolled.tasks import Request

Runs = Callable[[str], Path]
Models = Callable[[str], Model]
SLOW = pytest.mark.skipif("UNROLLED_SLOW" not in os.environ, reason="slow: UNROLLED_SLOW=1 runs it where ray is")
TEXTS = [f"{'one fine' if number % 3 else 'two bad'} three {'one ' * (number % 7)}two" for number in range(1200)]

OPTIONS: dict[str, dict[str, Any]] = {
    "generate-lstm": {"max_tokens": 5, "temperature": 0.0},
    "translate-luong": {"beam": 2},
}


class HereDataset:
    """A dataset without Ray: `map_batches` works at once, in this process."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def columns(self) -> list[str]:
        names: list[str] = self.table.column_names
        return names

    def map_batches(self, kind: Any, **settings: Any) -> HereDataset:
        actor = kind(*settings["fn_constructor_args"], **settings["fn_constructor_kwargs"])
        size = settings["batch_size"]
        parts = [actor(self.table.slice(start, size)) for start in range(0, self.table.num_rows, size)]
        return HereDataset(pa.concat_tables(parts))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    package = SimpleNamespace(put=lambda one: one, get=lambda one: one, cluster_resources=lambda: {"CPU": 4.0})
    package.data = SimpleNamespace(ActorPoolStrategy=lambda min_size, max_size: (min_size, max_size))
    monkeypatch.setattr(unrolled.ray, "_ray", lambda: package)


def answered(model: Model, texts: list[str], **options: Any) -> list[dict[str, Any]]:
    """The records of `unrolled run --json`."""
    return [json.loads(line) for line in model.runner.run(Request(texts=texts, format="jsonl"), **options)]


def records(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with their lists and dictionaries."""

    def read(one: Any) -> Any:
        return json.loads(one) if isinstance(one, str) and one.startswith(("[", "{")) else one

    return [{name: read(one) for name, one in row.items()} for row in rows]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("kind", ["classify", "generate-lstm", "translate-luong", "tag-crf"])
def test_the_columns_are_those_of_run(kind: str, model_of: Models, run_of: Runs) -> None:
    options = OPTIONS.get(kind, {})
    given: Any = HereDataset(pa.table({"number": [*range(9)], "text": TEXTS[:9], "label": [*"abcabcabc"]}))
    found: Any = unrolled.ray.predict(given, run_of(kind), column="text", options=options, batch_size=4)
    rows = records(found.table.to_pylist())
    assert [row.pop("number") for row in rows] == [*range(9)]
    kept = "given_label" if kind == "classify" else "label"
    assert "".join(row.pop(kept) for row in rows) == "abcabcabc"
    assert rows == answered(model_of(kind), TEXTS[:9], **options)


@pytest.mark.usefixtures("here")
def test_a_recording_that_cannot_be_read_is_an_error_of_its_row(run_of: Runs, model_of: Models, tmp_path: Path) -> None:
    manifest = write_recordings(tmp_path, words(3))
    names = [line.split("\t")[0] for line in manifest.read_text().splitlines()]
    (tmp_path / names[1]).write_bytes(b"no sound")
    given: Any = HereDataset(pa.table({"audio": names, "said": words(3)}))
    found: Any = unrolled.ray.predict(given, model_of("recognize"), column="audio", folder=tmp_path)
    rows = found.table.to_pylist()
    assert "is not" in rows[1]["error"] or "cannot" in rows[1]["error"]
    assert [row["error"] for row in rows][::2] == [None, None]
    good = answered(model_of("recognize"), [str(tmp_path / name) for name in names[::2]])
    assert [row["text"] for row in rows[::2]] == [row["text"] for row in good]


def refused(problem: str, *given: Any, **settings: Any) -> None:
    with pytest.raises(UserError) as error:
        unrolled.ray.predict(*given, **settings)
    assert str(error.value) == problem


@pytest.mark.usefixtures("here")
def test_mistakes_are_told_before_anything_is_computed(run_of: Runs) -> None:
    table: Any = HereDataset(pa.table({"id": [1], "text": ["one"]}))
    model = run_of("classify")
    refused("The data has 2 columns: id, text. Say which one has the inputs: column=...", table, model)
    refused("Unknown column 'txt'. Did you mean 'text'? Choices: id, text.", table, model, column="txt")
    with pytest.raises(UserError, match="Unknown predict option 'beem'"):
        unrolled.ray.predict(table, model, column="text", options={"beem": 3})
    refused(
        "Column 'id' holds 1, which is no text. Expected texts or paths of files.", table, model, column="id"
    )  # of an actor
    refused(
        "A forecast needs the rows of its series in order. Use `unrolled run` for each series.",
        table,
        run_of("forecast"),
    )


class HereTasks(SimpleNamespace):
    """Ray's tasks, done at once in this process."""

    def remote(self, function: Any) -> Any:
        return SimpleNamespace(remote=function)


@pytest.fixture
def tasks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unrolled.ray, "_ray", lambda: HereTasks(get=lambda one: one))


@pytest.mark.usefixtures("tasks_here")
def test_an_ngram_model_of_parts_is_that_of_the_whole(tmp_path: Path) -> None:
    parts = [tmp_path / f"part{number}.txt" for number in range(3)]
    for number, part in enumerate(parts):
        part.write_text("\n".join(TEXTS[number::3]) + "\n")
    (tmp_path / "whole.txt").write_text("".join(part.read_text() for part in parts))
    unrolled.ray.count(parts, tmp_path / "parts.arpa", order=3)
    NGram.train_to(tmp_path / "whole.arpa", tmp_path / "whole.txt", order=3)
    assert (tmp_path / "parts.arpa").read_bytes() == (tmp_path / "whole.arpa").read_bytes()


@pytest.mark.usefixtures("tasks_here")
def test_a_cache_made_in_tasks_is_that_of_processes(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(TEXTS) + "\n")

    def made(folder: str) -> dict[str, bytes]:
        cache = TokenCache(tmp_path / folder, processes=3)
        whole, _ = cache.text(text)
        cache.ids(whole, cache.trained(whole, "word"))
        found = (tmp_path / folder).rglob("*")
        return {str(p.relative_to(tmp_path / folder)): p.read_bytes() for p in found if p.is_file()}

    with unrolled.ray.caching():
        there = made("there")
    assert there == made("here")
    assert len(there) > 3


@pytest.mark.usefixtures("tasks_here")
def test_a_part_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        unrolled.ray.count([tmp_path / "none.txt"], tmp_path / "out.arpa")


def test_without_ray(run_of: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    fix = "Install it: pip install 'unrolled[ray]'"
    refused(f"ray is not installed. {fix}", None, run_of("classify"))


@SLOW
@pytest.mark.parametrize("kind", ["text", "parquet", "manifest"])
def test_a_cluster_that_loses_one_of_three_nodes_gives_the_same(
    kind: str, run_of: Runs, model_of: Models, tmp_path: Path
) -> None:
    pytest.importorskip("ray", reason="it needs ray: pip install '.[ray]'")
    from tests.ray_cluster import answers_of_a_cluster

    folder = None
    if kind == "text":
        (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
        inputs, task, column = TEXTS, "classify", "text"
    elif kind == "parquet":
        inputs, task, column = [f"3 5 7 {number}" for number in range(300)], "tag-crf", "text"
        parquet.write_table(pa.table({"number": [*range(300)], "text": inputs}), tmp_path / "texts.parquet")
    else:
        manifest = write_recordings(tmp_path, words(60))
        folder, task, column = tmp_path, "recognize", "audio"
        inputs = [str(tmp_path / line.split("\t")[0]) for line in manifest.read_text().splitlines()]
    found, killed = answers_of_a_cluster(kind, tmp_path, run_of(task), column, folder)
    assert killed
    found, key = records(found), "tokens" if task == "tag-crf" else "input"
    expected = {str(row[key]): row for row in answered(model_of(task), inputs)}
    assert len(found) == len(inputs)
    for row in found:
        wanted = expected[str(row[key])]
        assert {name: row[name] for name in wanted} == wanted
