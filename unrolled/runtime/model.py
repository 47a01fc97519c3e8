"""RuntimeModel: an exported model in use. It answers as `unrolled.Model` does, with the same runners."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from unrolled.data import Batch
from unrolled.data.memory.inputs import given_to_evaluate, inputs_in
from unrolled.errors import UserError
from unrolled.runtime.graph import Graphs, onnxruntime
from unrolled.runtime.manifest import Manifest, read_manifest
from unrolled.runtime.settings import StoredSettings, file_changes
from unrolled.tasks.options import TaskOptions, options_of


class Home(NamedTuple):
    """The parts of a task that need no torch: modules and names in them."""

    assets: str  # module:function from stored assets to assets
    runner: str
    network: str
    graphs: tuple[str, ...]


HOMES = {
    "classify": Home(
        "tasks.classify.assets:ClassifyAssets.from_json",
        "tasks.classify.run:ClassifyRunner",
        "runtime.readers:RuntimeClassifier",
        ("whole",),
    ),
    "tag": Home(
        "tasks.tag.assets:TagAssets.from_json",
        "tasks.tag.run:TagRunner",
        "runtime.readers:RuntimeTagger",
        ("whole",),
    ),
    "forecast": Home(
        "data.signals.scaling:ColumnScaling.from_json",
        "tasks.forecast.run:ForecastRunner",
        "runtime.signals:RuntimeForecaster",
        ("whole",),
    ),
    "recognize": Home(
        "tasks.recognize.labels:RecognizeAssets.from_json",
        "tasks.recognize.run:RecognizeRunner",
        "runtime.signals:RuntimeRecognizer",
        ("whole",),
    ),
    "generate": Home(
        "text.tokenizer:tokenizer_from_json",
        "tasks.generate.run:GenerateRunner",
        "runtime.language:language_model",
        ("whole", "step"),
    ),
    "translate": Home(
        "tasks.translate.assets:TranslateAssets.from_json",
        "tasks.translate.run:TranslateRunner",
        "runtime.writers:RuntimeWriter",
        ("encode", "step"),
    ),
    "caption": Home(
        "tasks.caption.assets:CaptionAssets.from_json",
        "tasks.caption.run:CaptionRunner",
        "runtime.writers:RuntimeWriter",
        ("encode", "step"),
    ),
}
NEEDS_TORCH = "Use the model file with unrolled.load, which needs torch."


def found(home: str) -> Any:
    """The object that module:name means in this package."""
    module, _, names = home.partition(":")
    one: Any = import_module(f"unrolled.{module}")
    for name in names.split("."):
        one = getattr(one, name)
    return one


@dataclass(frozen=True)
class RuntimeTask:
    """The part of a task that running a model needs."""

    name: str

    @property
    def options(self) -> TaskOptions:
        return options_of(self.name)

    @property
    def file_keys(self) -> tuple[str, ...]:
        """The keys of the data section that say how a file is read."""
        keys: tuple[str, ...] = getattr(import_module(f"unrolled.tasks.{self.name}.options"), "FILE_KEYS", ())
        return keys

    @property
    def parallel(self) -> bool:
        """True if data may be two files."""
        return self.name in ("translate", "caption")

    @property
    def runner(self) -> Callable[[Any], Any]:
        runner: Callable[[Any], Any] = found(HOMES[self.name].runner)
        return runner

    def check(self, options: Mapping[str, Any]) -> None:
        """Refuse options that only a model with torch has."""
        if options.get("picture") is not None:
            raise UserError("An exported model draws no pictures.", f"Leave out --picture. {NEEDS_TORCH}")
        if options.get("explain"):
            raise UserError("An exported model explains no answer.", f"Leave out --explain. {NEEDS_TORCH}")
        if options.get("precision") not in (None, "auto", "fp32"):
            raise UserError(
                f"precision={options['precision']!r} is not for an exported model: its graphs decide.",
                "Leave it out, or export the model with --weights fp16.",
            )


@dataclass(repr=False)
class RuntimeModel:
    """An exported model: its graphs, task, config, vocabularies and scores."""

    task: RuntimeTask
    config: StoredSettings
    assets: Any
    network: Any
    scores: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    device: str = "cpu"

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {value:.4g}" for name, value in self.scores.items())
        return f"RuntimeModel({self.task.name}, onnxruntime; {scores or 'not scored'})"

    @contextmanager
    def answering(self, precision: str = "fp32") -> Iterator[None]:
        """A block in which the network answers."""
        self.task.check({"precision": precision})
        yield

    def together(self, most: int) -> int:
        """The number of inputs in a batch."""
        return most

    def placed(self, batch: Batch) -> Batch:
        """The batch as the network reads it: NumPy's arrays."""
        return batch

    @property
    def runner(self) -> Any:
        """Answers requests: `model.runner.run(Request(...))` yields the output of `unrolled run`."""
        return self.task.runner(self)

    def predict(self, inputs: Any = "", **options: Any) -> Any:
        """The answer to one input, or to a list of them in order."""
        self.task.options.check("predict", options)
        self.task.check(options)
        read = inputs_in(inputs, self.runner.rows_given)
        return found(f"tasks.{self.task.name}.predict:predict")(self, read, **options)

    def evaluate(
        self, data: Any, *, set: Mapping[str, Any] | Sequence[str] | None = None, **options: Any
    ) -> dict[str, Any]:
        """Scores on a file, or on data in memory: those of `unrolled.Model.evaluate`. `set` is for other columns."""
        self.task.options.check("eval", options)
        self.task.check(options)
        evaluate_file = found(f"tasks.{self.task.name}.scores:evaluate_file")
        try:
            with given_to_evaluate(data, parallel=self.task.parallel) as name:
                scores: dict[str, Any] = evaluate_file(self.read_as(set), name, **options)
        except ModuleNotFoundError as error:  # of packages that an install for running alone may lack
            package = (error.name or "").partition(".")[0]
            if package in ("", "unrolled"):
                raise
            raise UserError(
                f"Scoring needs {package}, which is not installed.", f"Install it: pip install {package}"
            ) from None
        return scores

    def stream(self, **options: Any) -> Any:
        """A stream that takes input in pieces; the split does not change the result."""
        self.task.options.check("stream", options)
        return self.runner.stream(**options)

    def log_prob(self, texts: Sequence[str]) -> list[float]:
        """The log-probability of each text, for models of text."""
        scores: list[float] = self.runner.log_prob(texts)
        return scores

    def align(self, inputs: Any, texts: str | Sequence[str], **options: Any) -> Any:
        """The places of the words and labels of a known text in an input, by a model of `recognize`."""
        return self.runner.align(inputs, texts, **options)

    def read_as(self, set: Mapping[str, Any] | Sequence[str] | None) -> RuntimeModel:
        """The same model for files with other columns: `set` changes keys such as data.text_column."""
        changes = file_changes(set, [f"data.{name}" for name in self.task.file_keys])
        return replace(self, config=self.config.changed(changes)) if changes else self

    def __getattr__(self, name: str) -> Any:
        if name in ("trace", "embed", "word_vectors", "save", "tracer"):
            raise UserError(f"An exported model has no `{name}`.", NEEDS_TORCH)
        raise AttributeError(f"RuntimeModel has no attribute {name!r}")


def load(path: str | Path) -> RuntimeModel:
    """The exported model of a folder. Nothing of torch is imported, and no code is ever loaded from the folder."""
    folder = Path(path)
    manifest: Manifest = read_manifest(folder)
    if manifest.task not in HOMES:
        raise UserError(
            f"{folder} is a model of the task {manifest.task!r}, which the runtime does not know.",
            f"It knows {', '.join(HOMES)}.",
        )
    onnxruntime()  # missing ones are told before anything is read
    home, graphs = HOMES[manifest.task], Graphs(folder, manifest)
    graphs.check(home.graphs)
    config, assets = StoredSettings(manifest.config), found(home.assets)(manifest.assets)
    if manifest.task == "recognize":
        assets = found("runtime.signals:with_graph")(assets, graphs)
    network = found(home.network)(graphs, manifest, config, assets)
    return RuntimeModel(RuntimeTask(manifest.task), config, assets, network, manifest.scores, manifest.versions)
