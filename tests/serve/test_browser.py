"""The page in a real browser: every view of a model of every task, its numbers, its keys, a phone's width."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import torch

from tests.see.models import FILES, KINDS
from unrolled import api
from unrolled.model import Model
from unrolled.see.views.runs import Updates
from unrolled.serve import Asked, Inspection, save_report
from unrolled.serve.page import find_port, make_app

pytest.importorskip("fastapi", reason="the page needs fastapi: pip install 'unrolled[see]'")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright, which drives the browser, is not installed")
BROWSER = os.environ.get("UNROLLED_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser: install chromium, or set UNROLLED_BROWSER")

Runs = Callable[[str], Path]
Models = Callable[[str], Model]
EVERY = [
    "generate-lstm",
    "generate-feedforward",
    "classify",
    "tag-crf",
    "forecast",
    "translate-luong",
    "translate-transformer",
    "recognize",
    "caption",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", *QUIET])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page where a script error or a request to another site fails the test."""
    context = browser.new_context(viewport={"width": 1100, "height": 800})
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    ours = ("http://127.0.0.1", "file:", "data:", "blob:")
    opened.on("request", lambda request: None if request.url.startswith(ours) else wrong.append(request.url))
    yield opened
    context.close()
    assert wrong == []


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


@pytest.mark.parametrize("kind", EVERY)
def test_every_view_of_every_task(kind: str, page: Any, run_of: Runs, data: Path, tmp_path: Path) -> None:
    inspection = inspection_of(run_of, kind, data)
    trace = inspection.asked.trace()
    with served(inspection) as address:
        page.goto(address)
        opened(page, "overview")
        assert trace.answer in page.text_content("#answer")
        drawn = page.evaluate("[...document.querySelectorAll('.plot')].map(p => [p.data[0].name, p.data[0].y])")
        assert ("loss" in dict(drawn)) == (len(trace.losses) > 1)  # a single loss is text, not a chart
        if len(trace.losses) > 1:
            close(dict(drawn)["loss"], trace.losses)
        assert len(drawn) == len(trace.forecasts) + (len(trace.losses) > 1)
        tabs = page.query_selector_all("#tabs button:not([disabled])")
        names = [tab.get_attribute("id").removeprefix("tab-") for tab in tabs]
        wanted = {"overview", "gradients", "runs"} | ({"states", "step"} if trace.parts else set())
        wanted |= {"words"} if trace.task in ("generate", "classify", "tag", "translate") else set()
        wanted |= {view for view in ("attention", "beams", "frames") if view in trace.kinds}
        assert set(names) == wanted
        for tab in page.query_selector_all("#tabs button[disabled]"):
            assert len(tab.get_attribute("title")) > 10  # it says why
        for name in names:
            page.click(f"#tab-{name}")
            opened(page, name)
            page.screenshot(path=tmp_path / f"{name}.png", full_page=True)
            assert (tmp_path / f"{name}.png").stat().st_size > 5000
            assert page.query_selector(".problem") is None
            for words in page.evaluate("[...document.querySelectorAll('.plot')].map(p => p.ariaLabel)"):
                assert re.search(r"(from|search|order|values)", words)  # a chart says what it shows


def close(shown: Any, expected: torch.Tensor) -> None:
    """Check a chart's numbers against the trace's, to the four digits that are sent."""
    rows = shown if isinstance(shown[0], list) else [shown]
    numbers = torch.tensor([[float("nan") if value is None else value for value in row] for row in rows])
    numbers = numbers if isinstance(shown[0], list) else numbers[0]
    torch.testing.assert_close(numbers, expected.float(), rtol=1e-3, atol=1e-5, equal_nan=True)


def test_numbers_are_the_traces(page: Any, run_of: Runs, model_of: Models, data: Path) -> None:
    trace = model_of("translate-luong").trace("3 5 7")
    with served(inspection_of(run_of, "translate-luong", data)) as address:
        page.goto(f"{address}#{urlencode({'view': 'states', 'layer': 'decoder.l0', 'quantity': 'f'})}")
        opened(page, "states")
        close(plotted(page)["z"], trace.values("decoder.l0", "f").T)
        page.click("#tab-gradients")
        opened(page, "gradients")
        norms = trace.gradients("decoder.l0")
        close(plotted(page, 1)["z"], torch.where(norms > 0, norms.log10(), torch.nan))
        page.click("#tab-attention")
        opened(page, "attention")
        close(plotted(page)["z"], trace.attention["translation → source"].weights[0, 0])
        page.click("#tab-beams")
        opened(page, "beams")
        assert trace.beams is not None
        assert page.text_content("#outputs tr:nth-child(2)") == "".join(
            f"{value:.4g}" if isinstance(value, float) else str(value) for value in (1, *trace.beams.outputs[0])
        )
        page.click("#tab-step")
        opened(page, "step")
        lines = trace.by_hand(0, 0, "decoder.l0").lines
        assert page.text_content("#equations tr:last-child strong") == f"= {lines[-1].shown}"


def test_what_if(page: Any, run_of: Runs, model_of: Models, data: Path) -> None:
    """A click hides a token, an option is set, and the URL holds both."""
    model = model_of("translate-luong")
    with served(inspection_of(run_of, "translate-luong", data)) as address:
        page.goto(address)
        opened(page, "overview")
        page.locator(".tokens").nth(1).locator("button").nth(2).click()
        until(page, "location.hash.includes('o.hide=2')")
        opened(page, "overview")
        close(plotted(page)["y"], model.trace("3 5 7", hide=(2,)).losses)
        page.fill("[name='o.beam']", "2")
        page.press("[name='o.beam']", "Tab")
        until(page, "location.hash.includes('o.beam=2')")
        page.fill("#text", "5 7")
        page.press("#text", "Control+Enter")
        until(page, "location.hash.includes('text=5+7')")
        page.click("#tab-beams")
        opened(page, "beams")
        link = page.url
        rows = page.locator("#outputs tr").count()
        page.goto("about:blank")
        page.goto(link)
        opened(page, "beams")
        assert page.locator("#outputs tr").count() == rows == 3
        assert page.input_value("#text") == "5 7"
        page.goto(f"{address}#o.hide=77")
        page.reload()
        page.wait_for_selector(".problem")
        assert page.text_content(".problem") == "There is no token 77 to hide. Expected positions from 0 to 5."


def test_units_by_a_mark_on_the_text(page: Any, run_of: Runs, model_of: Models, data: Path) -> None:
    trace = model_of("generate-lstm").trace(KINDS["generate-lstm"][3])
    with served(inspection_of(run_of, "generate-lstm", data)) as address:
        page.goto(f"{address}#view=states&layer=l0&quantity=c")
        opened(page, "states")
        page.click("#marker summary")
        page.click("#marker >> text=place in the word")
        page.wait_for_selector("#correlations")
        shown = page.text_content("#correlations").replace("−", "-")
        places, count = [], 0
        for token in trace.tokens:
            count = 0 if token in " \n" else count + 1
            places.append(float(count))
        unit, correlation = trace.units_like(places, "l0", "c")[0]
        assert f": {unit} ({correlation:.2f})" in shown
        page.fill("#view input[type='number']", "3")
        page.press("#view input[type='number']", "Tab")
        until(page, "location.hash.includes('unit=3')")
        opened(page, "states")
        page.click("#find-places")
        page.wait_for_selector("#places mark")
        page.fill("#long-text", "pasted")
        page.select_option("#view select >> nth=1", "h")  # the view is drawn anew
        opened(page, "states")
        assert page.input_value("#long-text") == "pasted"
        page.click("#marker >> text=inside quotes")  # there are none: the picture stays
        page.wait_for_selector("#marker .problem")
        opened(page, "states")
        assert page.text_content("#marker .problem").startswith("inside quotes: The mark is the same for all tokens.")
        assert len(plotted(page)["z"]) == 12


def test_several_models_and_keys_alone(page: Any, run_of: Runs, data: Path) -> None:
    with served(inspection_of(run_of, "generate-lstm", data, "generate-rnn")) as address:
        page.goto(address)
        opened(page, "overview")
        page.focus("#tab-overview")
        for name in ("states", "step", "gradients"):
            page.keyboard.press("ArrowRight")
            opened(page, name)
            assert page.evaluate("document.activeElement.id") == f"tab-{name}"
        legend = page.evaluate("document.querySelector('.plot').data.map(d => d.name)")
        assert legend == ["generate-lstm", "generate-rnn"]
        page.select_option("#model", label="generate-rnn")
        until(page, "document.getElementById('facts').textContent.length > 0")
        page.click("#tab-states")
        opened(page, "states")
        assert page.evaluate("[...document.querySelectorAll('select')][2].length") == 1  # a vanilla RNN has h alone


def test_gradient_norms_of_a_run_that_goes_on(page: Any, run_of: Runs, data: Path, tmp_path: Path) -> None:
    """Every layer over the updates, clipped ones marked; new updates keep the zoom."""
    run = tmp_path / "run"
    shutil.copytree(run_of("generate-lstm"), run)
    whole = (run / "updates.csv").read_text().splitlines(keepends=True)
    (run / "updates.csv").write_text("".join(whole[:4]))
    with served(Inspection(Asked({str(run): api.load(run)}, "3 and 4"))) as address:
        page.goto(f"{address}#view=runs")
        opened(page, "runs")
        norms = "[...document.querySelectorAll('.plot')].at(-1)"
        drawn = page.evaluate(f"{norms}.data.map(d => [d.name, d.y])")
        first = Updates.read(run)
        assert first is not None
        assert [name for name, _ in drawn] == [*first.layers, "total", "clipped"]
        for (name, shown), norm in zip(drawn[:-1], [*first.layers.values(), first.norm], strict=True):
            assert shown == pytest.approx(norm, rel=1e-3), name
        assert drawn[-1][1] == pytest.approx(first.norm[first.clipped], rel=1e-3)
        page.evaluate(f"Plotly.relayout({norms}, {{'xaxis.range[0]': 1, 'xaxis.range[1]': 2}})")
        (run / "updates.csv").write_text("".join(whole))
        until(page, f"{norms}.data[0].y.length == {len(whole) - 1}")
        assert page.evaluate(f"{norms}.layout.xaxis.range") == [1, 2]


def test_a_model_of_files_without_one_says_how_to_give_one(page: Any, run_of: Runs) -> None:
    for kind, message in (
        ("caption", f"This model reads files. Name one: unrolled inspect {run_of('caption')} FILE. "),
        ("tag-crf", "Enter an input above."),
    ):
        with served(Inspection(Asked({str(run_of(kind)): api.load(run_of(kind))}))) as address:
            page.goto(address)
            opened(page, "overview")
            assert page.text_content(".problem").startswith(message)


def test_a_search_grows(page: Any, run_of: Runs, model_of: Models, data: Path) -> None:
    """With the keys of the slider, and by playing."""
    trace = model_of("translate-luong").trace("3 5 7")
    assert trace.beams is not None
    with served(inspection_of(run_of, "translate-luong", data)) as address:
        page.goto(f"{address}#view=beams&until=2")
        opened(page, "beams")
        count = "document.querySelector('.plot').data.at(-1).x.length"
        assert page.evaluate(count) == sum(node.step <= 2 for node in trace.beams.nodes)
        page.focus("#until")
        page.keyboard.press("ArrowLeft")
        assert page.evaluate(count) == sum(node.step <= 1 for node in trace.beams.nodes)
        assert page.evaluate("document.activeElement.id") == "until"
        assert "until=1" in page.url
        page.click("#play")
        until(page, f"{count} == {len(trace.beams.nodes)}")


def test_a_phones_width_needs_no_scrolling_sideways(page: Any, run_of: Runs, data: Path, tmp_path: Path) -> None:
    page.set_viewport_size({"width": 375, "height": 700})
    with served(inspection_of(run_of, "translate-luong", data)) as address:
        page.goto(address)
        for name in ("overview", "states", "step", "gradients", "attention", "beams"):
            page.click(f"#tab-{name}")
            opened(page, name)
            assert page.evaluate("document.documentElement.scrollWidth") <= 375, name
            page.screenshot(path=tmp_path / f"{name}.png")


def test_a_report_opens_from_a_file(page: Any, run_of: Runs, data: Path, tmp_path: Path) -> None:
    """Every view works without a server or network, with the same numbers."""
    inspection = inspection_of(run_of, "translate-luong", data)
    save_report(inspection, tmp_path / "a.html")
    page.goto((tmp_path / "a.html").as_uri())
    opened(page, "overview")
    trace = inspection.asked.trace()
    close(plotted(page)["y"], trace.losses)
    for name in ("states", "step", "gradients", "attention", "beams", "runs"):
        page.click(f"#tab-{name}")
        opened(page, name)
        assert page.query_selector(".problem") is None, name
    assert page.is_disabled("#text")
    assert "has no word vectors" in page.get_attribute("#tab-words[disabled]", "title")


def test_a_long_text_is_binned_and_zoomed_into(page: Any, run_of: Runs, model_of: Models, data: Path) -> None:
    inspection = inspection_of(run_of, "generate-lstm", data)
    text = "3 and 4 make 7\n" * 80  # 1,200 characters
    inspection.asked.text = text
    values = model_of("generate-lstm").trace(text).values("l0", "h")
    with served(inspection) as address:
        page.goto(f"{address}#view=states")
        opened(page, "states")
        assert len(plotted(page)["x"]) == 400
        page.evaluate(
            "Plotly.relayout(document.querySelector('.plot'), {'xaxis.range[0]': 300, 'xaxis.range[1]': 349})"
        )
        until(page, "location.hash.includes('first=300')")
        opened(page, "states")
        assert plotted(page)["x"] == list(range(300, 350))
        close(plotted(page)["z"], values[300:350].T)


def test_the_truth_and_the_words_that_speak_for_it(page: Any, run_of: Runs) -> None:
    path = str(run_of("classify"))
    inspection = Inspection(Asked({path: api.load(path)}, example=0))
    trace = inspection.asked.trace()
    with served(inspection) as address:
        page.goto(address)
        opened(page, "overview")
        assert page.text_content("#truth") == trace.truth
        assert ("✓ right" if trace.right else "✗ wrong") in page.text_content("#answer")
        shown = {row.text_content() for row in page.query_selector_all("#weights tr")}
        found = trace.attribution
        for word, score in zip(found.words, found.scores, strict=True):
            assert f"{word}{float(f'{score:.4g}'):.4f}".replace("-", "−") in shown
        page.select_option("#view select", "answer")
        until(page, "location.hash.includes('o.target=answer')")
        opened(page, "overview")
        assert "of the model's own answer" in page.text_content("#view h2")
        page.click("#tab-gradients")  # in every view
        opened(page, "gradients")
        assert page.text_content(".beside-line").endswith(f" · truth: {trace.truth} · losses of the answer")
        page.click("#tab-overview")
        opened(page, "overview")
        page.fill("#text", "one poor")
        page.press("#text", "Enter")  # another text, without a known truth
        until(page, "location.hash.includes('text=one+poor')")
        opened(page, "overview")
        assert page.query_selector("#truth") is None
        page.fill("#text", "two poor")  # typed and not looked at: an option does not lose it
        if not page.is_visible("[name='o.hide']"):
            page.click("#changes summary")
        page.fill("[name='o.hide']", "0")
        page.press("[name='o.hide']", "Tab")
        until(page, "location.hash.includes('text=two+poor')")


def test_a_step_by_the_arrow_keys_with_its_numbers_on_the_wires(page: Any, run_of: Runs, data: Path) -> None:
    inspection = inspection_of(run_of, "generate-lstm", data)
    inspection.asked.opens = {"unit": "3"}
    trace = inspection.asked.trace()
    with served(inspection) as address:
        page.goto(f"{address}#view=step")
        opened(page, "step")
        page.focus("#view")
        page.keyboard.press("ArrowRight")
        until(page, "location.hash.includes('step=1')")
        opened(page, "step")
        drawn = page.text_content("#unrolled").replace("−", "-")
        for value in trace.values("l1", "c")[:8, 3].tolist():
            assert f"c {float(f'{value:.4g}'):.2f}" in drawn
        cell = page.get_attribute(".cell-diagram", "aria-label").replace("−", "-")
        hidden = float(trace.values("l0", "h")[1, 3])
        assert cell.endswith(f"h {float(f'{hidden:.4g}'):.4f}")
        assert page.evaluate("document.querySelectorAll('#equations math msub').length") > 10
        page.click("#unrolled [data-step='2'][data-layer='l1']")
        until(page, "location.hash.includes('step=2') && location.hash.includes('layer=l1')")


def test_a_layer_that_reads_both_ways_is_drawn_so(page: Any, run_of: Runs, data: Path) -> None:
    """The input goes into both cells, both states come out, and the backward one reads the next step's state."""
    inspection = inspection_of(run_of, "classify", data)
    trace = inspection.asked.trace()
    last = len(trace.tokens) - 1
    with served(inspection) as address:
        page.goto(f"{address}#view=step&layer=l0_reverse")
        opened(page, "step")
        wires = page.evaluate(
            """[...document.querySelectorAll('#unrolled [data-wire]')].map(w => {
                const all = w.getAttribute('d').match(/[\\d.-]+ [\\d.-]+/g).map(p => p.split(' ').map(Number));
                return [w.dataset.wire, w.dataset.of, w.dataset.at, all[0], all.at(-1)]; })"""
        )
        found = {(what, of, int(at)): (start, end) for what, of, at, start, end in wires}
        for t in range(last + 1):
            forward, backward = (found["in", name, t] for name in ("l0", "l0_reverse"))
            assert forward[0][0] == backward[0][0]  # they begin under one token
            assert backward[1][1] < forward[1][1] < backward[0][1] <= forward[0][1]  # and end at cells of their own
            assert found["out", "l0", t][1] == found["out", "l0_reverse", t][1]
            start, end = found["state", "l0_reverse", t]
            assert start[0] > end[0]
            start, end = found["state", "l0", t]
            assert start[0] < end[0]
        assert "ht+1" in page.text_content("#equations")
        assert "ht−1" not in page.text_content("#equations")


def test_gradients_of_exactly_zero_and_titles_clear_of_tokens(page: Any, run_of: Runs, data: Path) -> None:
    inspection = inspection_of(run_of, "classify", data)
    says = "[...document.querySelectorAll('.plot .annotation-text')].map(t => t.textContent)"
    with served(inspection) as address:
        page.goto(f"{address}#view=gradients")
        opened(page, "gradients")
        within = "[...document.querySelectorAll('.plot')[{}].querySelectorAll('{}')]"
        assert page.evaluate(within.format(1, ".xtick text") + ".length") > 1
        assert page.evaluate(within.format(1, ".xtitle") + ".length") == 0  # it would stand on the tokens
        assert "j from left to right" in page.text_content("figure:nth-of-type(2) figcaption")
        ticks = page.evaluate(within.format(0, ".xtick text") + ".map(t => t.textContent)")
        assert all(tick.isdigit() for tick in ticks)
        assert page.evaluate(says) == []
        for key, trace in list(inspection._traces.items()):
            inspection._traces[key] = dataclasses.replace(trace, _losses=0.0 * trace._losses)
        page.click("#tab-overview")
        opened(page, "overview")
        page.reload()
        opened(page, "overview")
        page.click("#tab-gradients")
        opened(page, "gradients")
        assert page.evaluate(says) == 3 * ["every gradient is exactly 0"]


def test_a_clicked_row_colours_the_text(page: Any, run_of: Runs, data: Path) -> None:
    inspection = inspection_of(run_of, "generate-rnn", data)
    values = inspection.asked.trace().values("l0", "h")
    with served(inspection) as address:
        page.goto(f"{address}#view=states")
        opened(page, "states")
        page.evaluate("document.querySelector('.plot').emit('plotly_click', {points: [{y: 5}]})")
        until(page, "document.querySelector('#coloured h2').textContent.endsWith('of unit 5')")
        titles = page.evaluate("[...document.querySelectorAll('#coloured .tokens button')].map(b => b.title)")
        assert titles == [
            f"step {t}: {float(f'{v:.4g}'):.4f}".replace("-", "−") for t, v in enumerate(values[:, 5].tolist())
        ]


def test_a_very_long_text_in_the_dark(browser: Any, run_of: Runs, data: Path) -> None:
    """The page reports sampled losses; dark colours and larger text apply to the charts."""
    inspection = inspection_of(run_of, "generate-rnn", data)
    inspection.asked.text = "3 and 4 make 7\n" * 600
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    with served(inspection) as address:
        for view in ("overview", "states", "gradients"):
            page.goto("about:blank")
            page.goto(f"{address}#view={view}")
            opened(page, view)
            assert page.query_selector(".problem") is None, view
        assert "of 9,000 losses, evenly spread" in page.text_content(".note")
        remembered = """async () => { const { remember, state, tooLong } = await import("unrolled/state");
            remember({ text: "x".repeat(60000) });
            return [state.text.length, tooLong(), location.hash.length < 500]; }"""
        assert page.evaluate(remembered) == [60000, True, True]  # the address cannot hold it, the page does
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 25, 29)"
        assert page.evaluate("document.querySelector('.plot').layout.font.color") == "#e6e6e6"
        size = "parseFloat(getComputedStyle(document.body).fontSize)"
        before = page.evaluate(size)
        page.click("#larger")
        assert page.evaluate(size) == pytest.approx(1.2 * before)
    context.close()
