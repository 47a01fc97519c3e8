"""The page in a real browser: every view of a model of every task, its numbers, its keys, a phone's width."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import torch

from tests.see.models import KINDS
from tests.serve.inspector.browsing import Models, Runs, close, inspection_of, opened, plotted, served, until
from unrolled import api
from unrolled.see.views.runs import Updates
from unrolled.serve.inspector import Asked, Inspection, save_report

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


def test_a_hidden_token_and_an_option_are_in_the_address(page: Any, run_of: Runs, model_of: Models, data: Path) -> None:
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
    page.clock.install()
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
        page.clock.run_for(10_000)  # the page's timers run without the wait
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
    page.clock.install()
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
        page.clock.run_for(15_000)  # the page's timers run without the wait
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
