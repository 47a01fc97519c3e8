"""Inspecting a large model: 5,000 steps of 1,024 units, from the request to the picture; and the cost of tracing.

    python benchmarks/inspecting.py [--steps 5000] [--units 1024] [--browser /usr/bin/chromium]

A server answers on 127.0.0.1 and a browser (playwright) opens the page: first the overview, then a state's picture,
then a detail of it. An untraced run is timed before and after a trace, taking turns with a new copy of the layer.
Before timing, the numbers on the page must equal the trace's.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
from measure import interleaved, machine, row, show, write
from playwright.sync_api import sync_playwright

from unrolled import Model, api
from unrolled.nn import LSTM
from unrolled.serve.inspector import Asked, Inspection
from unrolled.serve.inspector.page import find_port, make_app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--units", type=int, default=1024)
    parser.add_argument("--browser", default=shutil.which("chromium"))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    details: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        text = (f"{a} and {b} make {a + b}\n" for a in range(400) for b in range(400))
        file = Path(folder, "book.txt")
        file.write_text("".join(text)[: max(20_000, options.steps)])
        keys = {"model.hidden_size": options.units, "train.max_steps": 1, "train.batch_size": 4, "train.k1": 10}
        model = api.train("generate", train=file, out=f"{folder}/run", set=keys, quiet=True)
        alone = _alone(model, options.steps)
        opened = _opened(model, file.read_text()[: options.steps], options.browser)
    for what, seconds in opened.items():
        rows.append(row(f"{what}, {options.steps:,} steps × {options.units:,} units", f"{seconds:.2f} s", "", "3 s"))
        details.append({"what": what, "seconds": seconds})
    rows.append(row("of which the model's own run, untraced", f"{alone:.2f} s"))
    times = _untraced()
    rows.append(row("untraced run after a traced one, against before", times["before"] / times["after"], "", "1×"))
    rows.append(row("traced run against an untraced one", times["after"] / times["traced"]))
    details.append(times)
    facts = machine()
    print(facts)
    show("inspect", rows)
    write("inspecting", facts, rows, details)


def _opened(model: Model, text: str, browser: str) -> dict[str, float]:
    """Seconds until each view is drawn in a browser that is already open."""
    import uvicorn

    port = find_port(None)
    inspection = Inspection(Asked({"model": model}, text))
    server = uvicorn.Server(uvicorn.Config(make_app(inspection, port), port=port, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    found = {}
    with sync_playwright() as driver:
        page = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page()
        page.set_default_timeout(120_000)
        begun = time.perf_counter()
        page.goto(f"http://127.0.0.1:{port}/")
        found["opening the page"] = _ready(page, "overview", begun)
        begun = time.perf_counter()
        page.click("#tab-states")
        found["the states"] = _ready(page, "states", begun)
        begun = time.perf_counter()
        page.evaluate("location.hash += '&first=1000&last=1200&top=0&bottom=200'")
        while page.evaluate("document.querySelector('.plot')?.data?.[0].x.length") != 200:
            page.wait_for_timeout(5)
        found["a detail of them"] = time.perf_counter() - begun
        shown = torch.tensor(page.evaluate("document.querySelector('.plot').data[0].z"))
        expected = inspection.trace({"model": "model", "text": text}).values("l0", "h")[1000:1200, :200].T
        if not torch.allclose(shown, expected, rtol=1e-3, atol=1e-4):
            raise SystemExit("the page does not show the trace's numbers")
    server.should_exit = True
    return found


@torch.no_grad()
def _alone(model: Model, steps: int) -> float:
    """Seconds of an untraced run."""
    ids = torch.zeros(1, steps, dtype=torch.int64)
    begun = time.perf_counter()
    model.network(ids)
    return time.perf_counter() - begun


def _ready(page: Any, view: str, begun: float) -> float:
    page.wait_for_selector(f'#view[data-ready="{view}"]')
    return time.perf_counter() - begun


def _untraced() -> dict[str, float]:
    """Best seconds of a layer that was never traced, of one that was, and of the trace."""
    x = torch.randn(8, 200, 128)
    layers = [LSTM(128, 256, batch_first=True) for _ in range(2)]
    traced = layers[1].trace(x)
    if not torch.equal(traced.output, layers[1](x)[0]):
        raise SystemExit("a traced run differs from an untraced one")
    return interleaved(
        {"before": lambda: layers[0](x), "after": lambda: layers[1](x), "traced": lambda: layers[1].trace(x)}, 6.0
    )


if __name__ == "__main__":
    main()
