"""Exports a model into a folder: its graphs and the manifest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from unrolled.errors import UserError
from unrolled.export.checking import check, largest_difference
from unrolled.export.graphs import GraphPlan, plans_of
from unrolled.export.manifest import WrittenGraph, manifest_of
from unrolled.export.onnxruntime_web import onnxruntime_files
from unrolled.export.page import check_page, page_files
from unrolled.export.recording import record
from unrolled.export.weights import check_weights, with_weights
from unrolled.export.writing import write_graph
from unrolled.exported import MANIFEST
from unrolled.model import Model
from unrolled.runtime.model import HOMES, load
from unrolled.training.checkpoint import disk_errors, sync


class ScorePair(NamedTuple):
    """One score of a model and of its export."""

    model: float
    exported: float


@dataclass(frozen=True)
class Exported:
    """The result of an export."""

    folder: Path
    sizes: dict[str, int]  # bytes of each graph
    differences: dict[str, float]  # of each graph's outputs from the network's, where they were compared
    scores: dict[str, ScorePair] = field(default_factory=dict)  # on the file that was given to score both on


def export(
    model: Model,
    folder: str | Path,
    *,
    weights: str,
    check: bool,
    force: bool,
    web: bool = False,
    onnxruntime_web: str | Path | None = None,
    score_on: str | Path | None = None,
) -> Exported:
    """`unrolled.export_onnx`."""
    kind, place = check_weights(weights), Path(folder)
    _check_place(place, force)
    scores = {} if score_on is None else _numbers(_scored(model).evaluate(score_on))  # errors come before files
    page = _page(model, onnxruntime_web) if web else {}
    if onnxruntime_web is not None and not web:
        raise UserError("onnxruntime_web is for a page, and none was asked for.", "Give --web too (web=True).")
    model.network.eval()
    on = model.device
    model.to("cpu")
    try:
        plans = plans_of(model)
        graphs, differences = [], {}
        for plan in plans.graphs:
            written, difference = _written(model, plan, kind, check)
            graphs.append(written)
            if difference is not None:
                differences[plan.name] = difference
    finally:
        model.to(on)
    manifest = manifest_of(model, graphs, kind, plans.more)
    files = {graph.file: graph.data for graph in graphs} | page
    _write(place, {**files, MANIFEST: json.dumps(manifest, ensure_ascii=False, indent=1).encode()})
    pairs: dict[str, ScorePair] = {}
    if score_on is not None:
        ours = _numbers(load(place).evaluate(score_on))
        pairs = {name: ScorePair(value, ours[name]) for name, value in scores.items() if name in ours}
    return Exported(place, {graph.name: len(graph.data) for graph in graphs}, differences, pairs)


def _scored(model: Model) -> Model:
    """The model, if the runtime can score its export."""
    if model.task.name not in HOMES:
        raise UserError(
            f"score_on runs the exported model, and the runtime does not know the task {model.task.name!r}.",
            "Leave it out.",
        )
    return model


def _numbers(scores: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if isinstance(value, float)}


def _page(model: Model, onnxruntime_web: str | Path | None) -> dict[str, bytes]:
    """The files of the page; an error comes before the graphs are computed."""
    check_page(model)
    return page_files(onnxruntime_files(onnxruntime_web))


def _written(model: Model, plan: GraphPlan, weights: str, compare: bool) -> tuple[WrittenGraph, float | None]:
    arguments = plan.arguments()
    recorded = record(plan.network or model.network, plan.compute, arguments)
    graph = write_graph(recorded, arguments, plan.outputs, plan.name)
    full = graph.SerializeToString()
    difference = check(plan, full) if compare else None
    kind = check_weights(weights)
    if kind == "fp32":
        return WrittenGraph(plan.name, f"{plan.name}.onnx", graph, full), difference
    small = with_weights(graph, kind)
    data = small.SerializeToString()
    if compare:
        difference = largest_difference(plan, data)
    return WrittenGraph(plan.name, f"{plan.name}.onnx", small, data), difference


def _check_place(place: Path, force: bool) -> None:
    """Raise if something else is in the way."""
    if not place.exists() or (place.is_dir() and not any(place.iterdir())):
        return
    if not (place / MANIFEST).is_file():
        raise UserError(f"{place} exists and is not an exported model.", "Choose another folder.")
    if not force:
        raise UserError(f"{place} holds an exported model.", "Choose another folder, or replace it with --force.")


def _write(place: Path, files: Mapping[str, bytes]) -> None:
    """The whole folder, or none: it is written beside its place and renamed."""
    beside, old = place.with_name(place.name + ".new"), place.with_name(place.name + ".old")
    with disk_errors(place):
        shutil.rmtree(beside, ignore_errors=True)
        try:
            beside.mkdir(parents=True)
            for name, content in files.items():
                file = beside / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
                sync(file)
            if place.exists():
                shutil.rmtree(old, ignore_errors=True)
                place.rename(old)
            beside.rename(place)
            shutil.rmtree(old, ignore_errors=True)
        except OSError:
            shutil.rmtree(beside, ignore_errors=True)
            raise
