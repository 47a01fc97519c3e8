"""Reports: the page with recorded answers to all queries that it makes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unrolled.errors import UserError
from unrolled.see.report import check_place, key, write_report
from unrolled.see.views.layers import UNROLLED_STEPS
from unrolled.serve.inspector.asked import issue_notes
from unrolled.serve.inspector.inspection import Inspection

MOST_STEPS = 200  # with equations in a report


def save_report(inspection: Inspection, path: Path) -> None:
    """Write one self-contained HTML file of all models on the input."""
    check_place(path)
    inspection.check_opens()
    about = inspection.about()
    recorded: dict[str, Any] = {key("about", {}): about}
    for kind, query in _questions(inspection):
        try:
            found = recorded[key(kind, query)] = inspection.view(kind, query)
            if kind == "overview":
                issue_notes(found["notes"], inspection.asked.names[query["model"]] if len(about["models"]) > 1 else "")
        except UserError as error:
            if kind == "overview":
                raise  # the input itself is wrong; other errors are views that a model lacks
            recorded[key(kind, query)] = {"problem": str(error)}
    names = ", ".join(model["short"] for model in about["models"])
    write_report(path, recorded, f"{names}: {about['text'][:60]}")


def _questions(inspection: Inspection) -> Iterator[tuple[str, dict[str, str]]]:
    about = inspection.about()
    several = "yes" if len(about["models"]) > 1 else ""
    for model in about["models"]:
        query = inspection.opening(model["name"])
        unit = about["opens"].get("unit", "0")
        yield "overview", query
        overview = inspection.view("overview", query)
        if overview["attributes"]:
            yield "attribution", query
        for layer in overview["layers"]:
            here = {**query, "layer": layer["name"]}
            for quantity in layer["quantities"]:
                yield "values", {**here, "quantity": quantity, "order": "natural"}
                yield "values", {**here, "quantity": quantity, "order": "lively"}
            for step in range(min(MOST_STEPS, layer["steps"])):
                yield "step", {**here, "step": str(step), "unit": unit}
            yield "flow", here
        for part in overview["parts"]:
            yield "norms", {**query, "part": part["name"]}
            for first in range(0, min(MOST_STEPS, part["steps"]), UNROLLED_STEPS):
                yield "unrolled", {**query, "part": part["name"], "unit": unit, "first": str(first)}
        for name in (*(layer["name"] for layer in overview["layers"]), *overview["probes"]):
            yield "gradients", {**query, "layer": name}
            yield "gradients", {**query, "layer": name, "all": several}
        for name in overview["attention"]:
            for specials in ("yes", "no"):
                yield "attention", {**query, "map": name, "specials": specials}
        if "beams" in overview["kinds"]:
            yield "beams", query
        if "frames" in overview["kinds"]:
            yield "frames", query
        yield "map", {"model": model["name"]}
    if any(model["run"] for model in about["models"]):
        yield "runs", {}
