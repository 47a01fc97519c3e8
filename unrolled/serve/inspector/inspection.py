"""Views of models, inputs and runs for the page, as JSON."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unrolled.errors import UserError, unknown_name
from unrolled.model import Model
from unrolled.see import ModelTrace
from unrolled.see.marks import mark_of
from unrolled.see.places import Place
from unrolled.see.views import layers as layer_views
from unrolled.see.views import trace as views
from unrolled.see.views.runs import run_rows
from unrolled.serve.inspector.asked import Asked
from unrolled.serve.inspector.vectors import nearest, vector_map, why_no_words, word_map
from unrolled.tasks.runner import Request
from unrolled.tasks.tracer import Tracer

KEPT = 6  # cached traces

Query = Mapping[str, str]


@dataclass
class Inspection:
    """Answers the page's queries about the models, with a cache of traces."""

    asked: Asked
    _traces: OrderedDict[tuple[Any, ...], ModelTrace] = field(default_factory=OrderedDict)
    _lock: Any = field(default_factory=threading.Lock)  # torch's graphs are not thread-safe

    def about(self) -> dict[str, Any]:
        """The models with their options, and the initial input."""
        given = {k: ",".join(map(str, v)) if isinstance(v, tuple) else str(v) for k, v in self.asked.options.items()}
        found: dict[str, Any] = views.finite(
            {
                "models": [self._about(name, model) for name, model in self.asked.models.items()],
                "text": self.asked.text or "",
                "file": self.asked.named,
                "options": given,
                "opens": dict(self.asked.opens),
            }
        )[0]
        return found

    def opening(self, name: str) -> dict[str, str]:
        """The page's first query about a model: the input and its options."""
        about = self.about()
        options = {f"o.{option}": value for option, value in about["options"].items()}
        return {"model": name, "text": about["text"], **options}

    def check_opens(self) -> None:
        """Reject an initial layer or unit that the first model does not have."""
        layer, unit = self.asked.opens.get("layer"), int(self.asked.opens.get("unit", 0))
        if (layer is None and not unit) or (self.asked.text is None and self.asked.named is None):
            return
        trace = self.trace(self.opening(next(iter(self.asked.models))))
        trace.by_hand(0, unit, layer)

    def _about(self, name: str, model: Model) -> dict[str, Any]:
        options = [
            {
                "name": option.name,
                "help": option.help,
                "default": "" if option.default in (None, ()) else str(option.default),
                "kind": option.kind.__name__,
                "choices": list(option.choices),
            }
            for option in model.tracer.options
        ]
        return {
            "name": name,
            "short": self.asked.names[name],
            "task": model.task.name,
            "parameters": model.num_parameters,
            "scores": {key: views.rounded(value) for key, value in model.scores.items()},
            "options": options,
            "fixed": model.runner.reads_files,
            "run": (Path(name) / "metrics.jsonl").is_file(),
            "words": why_no_words(model),
            "sentences": type(model.tracer).embed is not Tracer.embed and not model.runner.reads_files,
        }

    def view(self, kind: str, query: Query) -> dict[str, Any]:
        """Answer a query; all its values are strings, as in a URL.

        Non-finite numbers become null, with a `note`.
        """
        if kind not in VIEWS:
            raise unknown_name("view", kind, VIEWS)
        with self._lock:
            answer, gaps = views.finite(VIEWS[kind](self, query))
        found: dict[str, Any] = answer
        if gaps:
            found["note"] = f"{gaps:,} of these numbers are NaN or infinite. They are shown as gaps."
        return found

    def model(self, query: Query) -> Model:
        name = query.get("model") or next(iter(self.asked.models))
        if name not in self.asked.models:
            raise unknown_name("model", name, self.asked.models)
        return self.asked.models[name]

    def trace(self, query: Query) -> ModelTrace:
        """The trace of a query; the last few are cached."""
        model = self.model(query)
        options = {name.removeprefix("o."): value for name, value in query.items() if name.startswith("o.")}
        options = {name: value for name, value in options.items() if value != ""}
        key = (query.get("model") or next(iter(self.asked.models)), query.get("text", ""), *sorted(options.items()))
        if key not in self._traces:
            inputs, truth = self._input(model, query)
            self._traces[key] = model.trace(inputs, **{**truth, **options})
            if len(self._traces) > KEPT:
                self._traces.popitem(last=False)
        self._traces.move_to_end(key)
        return self._traces[key]

    def _input(self, model: Model, query: Query) -> tuple[Any, dict[str, Any]]:
        """The text of the query, or, if it is empty, the command's file or example; and an example's truth."""
        text = query.get("text", "")
        if self.asked.given is not None:
            return self.asked.given, {}
        if model.runner.reads_files and text not in ("", self.asked.text):
            raise UserError(
                "The page shows only the file given on the command line.",
                "For another: unrolled inspect MODEL FILE",
            )
        if self.asked.example is not None and text in ("", self.asked.text):
            return self.asked.input_for(model), self.asked.truth(model)
        files = (self.asked.file,) if self.asked.file is not None and not text else ()
        return model.tracer.input(Request(texts=[text] if text or not files else None, files=files)), {}


def _whole(query: Query, name: str, default: int | None = None) -> Any:
    """An integer of a query."""
    value = query.get(name, "")
    if value == "" and (default is not None or name in ("last", "bottom", "follow")):
        return default
    try:
        return int(value)
    except ValueError:
        raise UserError(f"{name}={value!r} is not a whole number.") from None


def _layer(query: Query, trace: ModelTrace) -> str:
    if not trace.layers and not trace.probes:
        raise UserError("This model has no layers to inspect.")
    return query.get("layer") or trace.default_layer()


def _values(self: Inspection, query: Query) -> dict[str, Any]:
    trace = self.trace(query)
    layer = _layer(query, trace)
    mark = mark_of(query.get("mark", ""), trace.part_of(layer).tokens)
    found = layer_views.values(
        trace,
        layer,
        query.get("quantity", "h"),
        _whole(query, "first", 0),
        _whole(query, "last"),
        query.get("order", "natural"),
        mark,
        _whole(query, "top", 0),
        _whole(query, "bottom"),
    )
    return {**found, "marks": mark[: views.MOST_TOKENS]}


def _unit(self: Inspection, query: Query) -> dict[str, Any]:
    trace = self.trace(query)
    where = _layer(query, trace), query.get("quantity", "h")
    return layer_views.unit(trace, *where, _whole(query, "unit", 0), _whole(query, "from", 0))


def _gradients(self: Inspection, query: Query) -> dict[str, Any]:
    """Gradients of one model, or of all models on the same input."""
    names = list(self.asked.models) if query.get("all") else [query.get("model") or next(iter(self.asked.models))]
    found = {}
    for name in names:
        trace = self.trace({**query, "model": name})
        of = query.get("layer") or trace.default_layer()
        if of not in trace.layers and of not in trace.probes and len(names) > 1:
            of = trace.default_layer()
        found[self.asked.names[name]] = {**layer_views.gradients(trace, of, _whole(query, "follow")), "layer": of}
    return {"models": found}


def _places(self: Inspection, query: Query) -> dict[str, Any]:
    found = self.trace(query).places(_whole(query, "unit", 0), query.get("layer"), query.get("quantity", "h"))

    def rows(places: list[Place]) -> list[dict[str, Any]]:
        return [{**asdict(place), "value": views.rounded(place.value)} for place in places]

    return {"most": rows(found.most), "least": rows(found.least)}


def _runs(self: Inspection, query: Query) -> dict[str, Any]:
    folders = {self.asked.names[name]: Path(name) for name in self.asked.models if Path(name).is_dir()}
    if not folders:
        raise UserError("These are model files, not run folders: they do not say how they were trained.")
    return {"runs": {name: run_rows(folder) for name, folder in folders.items()}}


def _map(self: Inspection, query: Query) -> dict[str, Any]:
    """A map of words, or of sentences, one per line, each with an optional label before a tab."""
    model, lines = self.model(query), query.get("lines", "")
    if not lines.strip():
        return word_map(model.word_vectors())
    rows = [line.partition("\t") for line in lines.splitlines() if line.strip()]
    texts = [after if tab else before for before, tab, after in rows]
    labels = [before if tab else "" for before, tab, _ in rows]
    if len(texts) < 3:
        raise UserError(f"A map needs at least three sentences; there are {len(texts)}.", "Give one per line.")
    return vector_map(np.asarray(model.embed(texts)), texts, labels)


View = Callable[[Inspection, Query], dict[str, Any]]
VIEWS: dict[str, View] = {
    "overview": lambda self, q: views.overview(self.trace(q), _whole(q, "from", 0)),
    "attribution": lambda self, q: views.attribution(self.trace(q)),
    "values": _values,
    "norms": lambda self, q: layer_views.norms(self.trace(q), q.get("part", "")),
    "gradients": _gradients,
    "unit": _unit,
    "unrolled": lambda self, q: layer_views.unrolled(
        self.trace(q), q.get("part", ""), _whole(q, "unit", 0), _whole(q, "first", 0)
    ),
    "flow": lambda self, q: layer_views.flow(
        self.trace(q), _layer(q, self.trace(q)), _whole(q, "follow") or layer_views.FLOW_STEPS
    ),
    "attention": lambda self, q: views.attention(self.trace(q), q.get("map", ""), q.get("specials", "yes") == "yes"),
    "beams": lambda self, q: views.beams(self.trace(q)),
    "frames": lambda self, q: views.frames(self.trace(q)),
    "step": lambda self, q: views.step(
        self.trace(q), _layer(q, self.trace(q)), _whole(q, "step", 0), _whole(q, "unit", 0)
    ),
    "places": _places,
    "words": lambda self, q: nearest(self.model(q).word_vectors(), q.get("words", "")),
    "map": _map,
    "runs": _runs,
}
