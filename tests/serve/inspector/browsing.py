"""Serve models to a browser, and read what its page shows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tests.see.models import FILES, KINDS
from unrolled import api
from unrolled.model import Model
from unrolled.serve.inspector import Asked, Inspection
from unrolled.serve.inspector.page import find_port, make_app

Runs = Callable[[str], Path]
Models = Callable[[str], Model]


@contextmanager
def served(inspection: Inspection) -> Iterator[str]:
    import uvicorn

    port = find_port(None)
    server = uvicorn.Server(uvicorn.Config(make_app(inspection, port), host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}/"
    server.should_exit = True
    thread.join()


def inspection_of(run_of: Runs, kind: str, data: Path, *others: str) -> Inspection:
    models = {str(run_of(one)): api.load(run_of(one)) for one in (kind, *others)}
    if kind in FILES:
        return Inspection(Asked(models, file=str(data / FILES[kind])))
    return Inspection(Asked(models, KINDS[kind][3]))


def opened(page: Any, view: str) -> None:
    """Wait until a view is drawn."""
    page.wait_for_selector(f'#view[data-ready="{view}"]')


def until(page: Any, condition: str) -> None:
    """Wait until a condition holds; the page's script policy forbids playwright's own function."""
    for _ in range(600):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never came to be: {condition}")


def plotted(page: Any, number: int = 0) -> dict[str, Any]:
    """The first trace of a plotly chart."""
    found: dict[str, Any] = page.evaluate(
        "n => { const d = document.querySelectorAll('.plot')[n].data[0]; return {x: d.x, y: d.y, z: d.z}; }", number
    )
    return found


def close(shown: Any, expected: torch.Tensor) -> None:
    """Check a chart's numbers against the trace's, to the four digits that are sent."""
    rows = shown if isinstance(shown[0], list) else [shown]
    numbers = torch.tensor([[float("nan") if value is None else value for value in row] for row in rows])
    numbers = numbers if isinstance(shown[0], list) else numbers[0]
    torch.testing.assert_close(numbers, expected.float(), rtol=1e-3, atol=1e-5, equal_nan=True)
