"""The model card: README.md of a repository, with a YAML header that the hub reads, and the model in plain words."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unrolled.config import Section, data_paths, title_of, write_toml
from unrolled.errors import UserError
from unrolled.hub.client import hub_client

COUNTS = ("tokens",)  # stored beside scores, and not scores themselves
OWN_DATA = "own"  # the hub's field for the name of a dataset, where the data is not one of the hub's


@dataclass(frozen=True)
class Usage:
    """The part of a card that a task decides."""

    does: str  # a sentence: "The model …"
    pipeline: str | None = None  # the hub's name of the task
    command: str = "INPUT"  # arguments of `unrolled run MODEL`
    call: str = "model.predict(…)"
    limits: tuple[str, ...] = ()  # sentences


@dataclass(frozen=True)
class CardOptions:
    """The facts of a card that no model file knows. Nothing is invented: what is not given is left out."""

    name: str | None = None  # ORG/NAME on the hub
    licence: str | None = None  # the hub's identifier, such as apache-2.0
    language: Sequence[str] = ()  # codes, such as de
    datasets: Sequence[str] = ()  # names of datasets on the hub

    def __post_init__(self) -> None:
        if self.licence is not None and not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", self.licence):
            raise UserError(
                f"The licence {self.licence!r} is not an identifier.", "Expected one such as apache-2.0, mit or other."
            )
        for code in self.language:
            if not re.fullmatch(r"[a-z]{2,3}|code|multilingual", code):
                raise UserError(f"The language {code!r} is not a code.", "Expected two or three letters, such as de.")
        for dataset in self.datasets:
            if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", dataset):
                raise UserError(f"{dataset!r} is not the name of a dataset.", "Expected ORG/NAME of the hub.")


@dataclass(frozen=True)
class CardFacts:
    """The part of a model that its card describes."""

    task: str
    usage: Usage
    parameters: int
    config: Section
    scores: Mapping[str, float]
    versions: Mapping[str, str]
    data: Mapping[str, str]  # `source` and `sha256`, where the model file knows them


def make_card(model: CardFacts, options: CardOptions) -> str:
    """The whole card as Markdown."""
    name = options.name or f"unrolled-{model.task}"
    parts = [
        f"---\n{_header(model, options, name)}\n---",
        f"# {name.rpartition('/')[2]}",
        f"{model.usage.does} It has {model.parameters:,} parameters and was trained with "
        f"unrolled, task `{model.task}`.",
        _data(model, options),
        _scores(model),
        _limits(model),
        _use(model, options.name),
        _config(model),
        _licence(options.licence),
    ]
    return "\n\n".join(parts) + "\n"


def _header(model: CardFacts, options: CardOptions, name: str) -> str:
    client = hub_client()
    usage = model.usage
    results = [
        client.EvalResult(
            task_type=usage.pipeline or model.task,
            dataset_type=OWN_DATA,
            dataset_name=f"validation data of {model.data.get('source', 'the training run')}",
            dataset_split="validation",
            metric_type=metric,
            metric_name=metric,
            metric_value=value,
        )
        for metric, value in finite(model.scores).items()
        if metric not in COUNTS
    ]
    data = client.ModelCardData(
        library_name="unrolled",
        license=options.licence,
        language=list(options.language) or None,
        datasets=list(options.datasets) or None,
        pipeline_tag=usage.pipeline,
        tags=["unrolled", model.task, *_kind(model.config)],
        model_name=name.rpartition("/")[2],
        eval_results=results or None,
    )
    return str(data.to_yaml()).strip()


def finite(scores: Mapping[str, float]) -> dict[str, float]:
    """The scores that are numbers: neither YAML nor a reader has a use for others."""
    return {name: value for name, value in scores.items() if math.isfinite(value)}


def _kind(config: Section) -> list[str]:
    """The kind of network as tags, such as lstm or transformer."""
    section: Any = getattr(config, "model", None)
    kind = getattr(section, "kind", None)
    cell = getattr(section, "cell", None)
    return [str(one) for one in ((cell,) if kind in (None, "recurrent") else (kind,)) if isinstance(one, str)]


def _data(model: CardFacts, options: CardOptions) -> str:
    lines = ["## Training data", ""]
    source = model.data.get("source")
    lines.append(f"Files: {source}." if source else "The model file does not say which data it was trained on.")
    if options.datasets:
        links = ", ".join(f"[{name}](https://huggingface.co/datasets/{name})" for name in options.datasets)
        lines.append(f"On the hub: {links}.")
    if "sha256" in model.data:
        lines.append(
            "SHA-256 of all training and validation examples, as they were read: "
            f"`{model.data['sha256']}`. The same data gives the same hash in `unrolled info`."
        )
    return "\n".join(lines)


def _scores(model: CardFacts) -> str:
    rows = [f"| {name} | {value:.6g} |" for name, value in finite(model.scores).items()]
    if not rows:
        return "## Scores\n\nThe model file holds no scores."
    text = "On the validation data of the training run, which chose the best update and the end of training."
    return "\n".join(["## Scores", "", text, "", "| score | value |", "|---|---|", *rows])


def _limits(model: CardFacts) -> str:
    general = (
        "It knows its training data alone: on other kinds of input its answers can be wrong, with high confidence.",
        "The scores are of validation data, not of a test set: on new data expect slightly worse ones.",
    )
    return "\n".join(["## Limits", "", *(f"- {limit}" for limit in (*model.usage.limits, *general))])


def _use(model: CardFacts, name: str | None) -> str:
    where = f"hub:{name}" if name else "model.safetensors"
    extra = "'unrolled[hub]'" if name else "unrolled"
    return f"""## Use

```
pip install {extra}
unrolled run {where} {model.usage.command}
```

```python
import unrolled

model = unrolled.load("{where}")
print({model.usage.call})
```

The model is one safetensors file. Loading it runs no code of the repository."""


def _config(model: CardFacts) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in model.versions.items())
    config = write_toml(without_folders(model.config), comments=False).strip()
    return f"## Config\n\nVersions: {versions or 'unknown'}.\n\n```toml\n{config}\n```"


def _licence(licence: str | None) -> str:
    return "## Licence\n\n" + (f"`{licence}`" if licence else "No licence is stated.")


def without_folders(config: Section) -> Section:
    """The config with the names of files alone: a card says nothing of its author's folders."""
    names = {key.removeprefix("data."): title_of(Path(path).name) for key, path in data_paths(config).items()}
    data: Any = getattr(config, "data", None)
    return config.model_copy(update={"data": data.model_copy(update=names)}) if names else config
