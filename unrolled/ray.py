"""Large data on a Ray cluster: the answers of a model, caches of texts, and n-gram models."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch

from unrolled.data.batching.token_jobs import jobs_done_by
from unrolled.errors import UserError, unknown_name
from unrolled.jobs import load_model
from unrolled.model import Model, find_file
from unrolled.search import NGram
from unrolled.search.ngram import Counts
from unrolled.tasks import TASKS, Request, Task
from unrolled.text.tokenise import do

if TYPE_CHECKING:
    from ray.data import Dataset

KINDS = ((pa.bool_(), bool), (pa.int64(), int), (pa.float64(), (int, float)))  # of columns; the others are text


def predict(
    dataset: Dataset,
    model: str | Path | Model,
    *,
    column: str | None = None,
    folder: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    task: Task | None = None,
    actors: int | tuple[int, int] | None = None,
    num_cpus: float = 1,
    num_gpus: float = 0,
    batch_size: int | None = None,
) -> Dataset:
    """The rows of a Ray dataset with a model's answers: the keys of `unrolled run --json` as columns.

    `column` has the inputs: texts, or paths of recordings or pictures, which begin in `folder` unless they are
    absolute. A dataset of one column needs no name. The other columns are kept. `options` are those of `model.predict`.

    Each actor holds the model, on `num_cpus` cores, or on a GPU with `num_gpus=1`. `actors` is their number, or the
    least and the most; without it there are as many as the cluster has room for. The driver reads the model file: the
    nodes need no copy of it.
    """
    ray = _ray()
    loaded = model if isinstance(model, Model) else load_model(model, task=task)
    if loaded.task.name == "forecast":
        raise UserError("A forecast needs the rows of its series in order.", "Use `unrolled run` for each series.")
    loaded.task.options.check("predict", options or {})
    place = _column_of(dataset, column)
    own = None if loaded.task.name in TASKS else loaded.task
    given = (ray.put(_content(model)), own, place, str(folder or ""), dict(options or {}))
    runner: Any = loaded.runner
    least, most = actors if isinstance(actors, tuple) else (actors or 1, actors or _room(ray, num_cpus, num_gpus))
    found: Dataset = dataset.map_batches(
        Predictor,
        fn_constructor_args=given,
        fn_constructor_kwargs={"device": "cuda" if num_gpus else "cpu", "threads": max(1, int(num_cpus))},
        batch_format="pyarrow",
        batch_size=batch_size or runner.at_once,
        compute=ray.data.ActorPoolStrategy(min_size=least, max_size=most),
        num_cpus=num_cpus,
        num_gpus=num_gpus or None,
    )
    return found


@contextmanager
def caching() -> Iterator[None]:
    """A block in which the nodes of a cluster make a missing `data.cache`, `data.cache_workers` parts at the same time.

    They must be able to read the text at its path. What they make comes back to this process, which writes the cache.
    """
    ray = _ray()

    def begin(jobs: list[dict[str, Any]]) -> Callable[[], None]:
        task = ray.remote(_file_made)
        found = [(Path(job["out"]), task.remote(job)) for job in jobs]

        def wait() -> None:
            for path, content in found:
                path.write_bytes(_got(ray, content))

        return wait

    with jobs_done_by(begin):
        yield


def count(
    parts: Sequence[str | Path], out: str | Path, *, order: int = 3, prune: Sequence[int] = (0,), memory: str = "1G"
) -> list[int]:
    """Train an n-gram model on the parts of a text, each counted on a node: the bytes of training on the whole.

    The nodes must be able to read the parts, whose order is that of the text. `memory` is that of each task, and of the
    training that adds up. `out` is an ARPA file; what is returned is how many n-grams of each order it got.
    """
    ray = _ray()
    task = ray.remote(_counts_made)
    found = [task.remote(str(Path(part).absolute()), order, memory) for part in parts]
    with TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}.counts" for number in range(len(found))]
        for file, content in zip(files, found, strict=True):
            file.write_bytes(_got(ray, content))
        totals: list[int] = NGram.train_to(out, Counts(*files), prune=prune, memory=memory)
        return totals


def _counts_made(part: str, order: int, memory: str) -> bytes:
    """The file of counts of a part."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "part.counts"
        NGram.count_to(file, part, order=order, memory=memory)
        return file.read_bytes()


def _file_made(job: dict[str, Any]) -> bytes:
    """The file that a job makes."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "part"
        do({**job, "out": str(file)})
        return file.read_bytes()


def _got(ray: Any, one: Any) -> bytes:
    """The bytes that a task made; the error that it met, without Ray's wrapping."""
    try:
        found: bytes = ray.get(one)
        return found
    except UserError as error:  # Ray's own class, and ours, with a traceback as its text
        raise getattr(error, "cause", error) from None


class Predictor:
    """The model of one actor: a table of inputs in, a table of answers out."""

    def __init__(
        self,
        content: Any,
        task: Task | None,
        column: str,
        folder: str,
        options: Mapping[str, Any],
        *,
        device: str = "cpu",
        threads: int = 1,
    ) -> None:
        """`content` is a reference to the bytes of the model file."""
        torch.set_num_threads(threads)
        with TemporaryDirectory() as place:
            file = Path(place) / "model.safetensors"
            file.write_bytes(_ray().get(content))
            self.model = load_model(file, task=task, device=device)
        self.column, self.folder, self.options = column, Path(folder), options

    def __call__(self, table: pa.Table) -> pa.Table:
        found = answer_columns(self._records(table[self.column].to_pylist()))
        kept = table.drop_columns([self.column])
        names = [f"given_{name}" if name in found else name for name in kept.column_names]
        return pa.table({**dict(zip(names, kept.columns, strict=True)), **found})

    def _records(self, inputs: Sequence[Any]) -> list[dict[str, Any]]:
        """The records that `unrolled run --json` writes for the inputs."""
        if wrong := next((one for one in inputs if not isinstance(one, str)), None):
            raise UserError(
                f"Column {self.column!r} holds {wrong!r}, which is no text.", "Expected texts or paths of files."
            )
        texts = [str(self.folder / text) for text in inputs] if self.model.runner.reads_files else list(inputs)
        records = self._answers(texts)
        if len(records) != len(texts):
            raise UserError(f"{len(texts)} rows are {len(records)} inputs.", "Give the path of one file in each row.")
        return records

    def _answers(self, texts: list[str]) -> list[dict[str, Any]]:
        """The records of texts; those of files that could not be read say so."""
        found = []
        try:
            for line in self.model.runner.run(Request(texts=texts, format="jsonl"), **self.options):
                found.append(json.loads(line))
        except UserError as error:
            if not self.model.runner.reads_files:
                raise
            if not found and len(texts) > 1:  # not one of them could be read
                return [record for text in texts for record in self._answers([text])]
            return found or [{"input": texts[0], "error": str(error)}]
        return found


def answer_columns(records: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
    """Records as columns of one kind each; lists and dictionaries become JSON, what a record lacks is null.

    >>> answer_columns([{"label": "good", "score": 1}, {"label": "bad", "score": 0.5, "n_best": ["bad"]}])["score"]
    <pyarrow.lib.DoubleArray object at 0x...>
    [
      1,
      0.5
    ]
    """
    found = {}
    for name in dict.fromkeys(name for record in records for name in record):
        values = [record.get(name) for record in records]
        there = [value for value in values if value is not None]
        kind = next((arrow for arrow, plain in KINDS if there and all(isinstance(v, plain) for v in there)), None)
        found[name] = pa.array(values, kind) if kind else pa.array([_text(value) for value in values], pa.string())
    return found


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _column_of(dataset: Dataset, column: str | None) -> str:
    """The column of the inputs: the named one, or the only one."""
    columns: list[str] = list(dataset.columns() or ())
    if column is None and len(columns) == 1:
        return columns[0]
    if column is None:
        raise UserError(
            f"The data has {len(columns)} columns: {', '.join(columns)}.", "Say which one has the inputs: column=..."
        )
    if column not in columns:
        raise unknown_name("column", column, columns)
    return column


def _content(model: str | Path | Model) -> bytes:
    """The bytes of a model file."""
    if not isinstance(model, Model):
        return find_file(model).read_bytes()
    with TemporaryDirectory() as place:
        file = Path(place) / "model.safetensors"
        model.save(file)
        return file.read_bytes()


def _room(ray: Any, num_cpus: float, num_gpus: float) -> int:
    """The number of actors that the cluster has room for."""
    there = ray.cluster_resources()
    needs = {"CPU": num_cpus, "GPU": num_gpus}
    return max(1, min(int(there.get(name, 0) / need) for name, need in needs.items() if need))


def _ray() -> Any:
    """The package, imported at first use; an error where it is missing."""
    try:
        import ray
        import ray.data
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is not installed.", "Install it: pip install 'unrolled[ray]'") from None
    return ray
