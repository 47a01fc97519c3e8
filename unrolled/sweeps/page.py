"""The page of a sweep: one HTML file that works offline, with its trials as a table and as pictures."""

from __future__ import annotations

import base64
import html
import importlib.util
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from unrolled.see.report import plotly_script
from unrolled.sweeps.figures import TrialsFigures
from unrolled.sweeps.plan import SweepPlan
from unrolled.training import Goal

FILES = files("unrolled.sweeps") / "page_files"


def page_of(folder: Path, plan: SweepPlan, goal: Goal, figures: TrialsFigures, pictures: Mapping[str, bytes]) -> str:
    """The page; without plotly its pictures do not move."""
    has_plotly = importlib.util.find_spec("plotly") is not None
    kept = {name: raw for name, raw in pictures.items() if not (has_plotly and name == "parallel")}
    shown = {name: f"data:image/png;base64,{base64.b64encode(raw).decode()}" for name, raw in kept.items()}
    data: dict[str, Any] = {
        "metric": goal.metric,
        "higher": goal.higher_is_better,
        "keys": list(plan.spaces),
        "spaces": {path: str(space) for path, space in plan.spaces.items()},
        "logarithmic": list(figures.logarithmic),
        "best": None if figures.best is None else figures.best.number,
        "rows": [row.cells() for row in figures.rows],
        "pictures": shown,
    }
    text = json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    scripts = [f'<script type="application/json" id="sweep">{text}</script>']
    if has_plotly and len(figures.complete) > 1:
        scripts.append(f"<script>{plotly_script().replace('</script', '<' + chr(92) + '/script')}</script>")
    scripts.append(f"<script>{_file('page.js')}</script>")
    title = f"Sweep of {plan.task.name}: {folder.name}"
    page = _file("index.html").replace("<!-- title -->", html.escape(title))
    return page.replace("/* style */", _file("style.css")).replace("<!-- scripts -->", "\n".join(scripts))


def _file(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")
