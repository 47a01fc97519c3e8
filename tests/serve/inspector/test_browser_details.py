"""The page in a real browser: long texts, true answers, single steps, drawings of layers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.serve.inspector.browsing import Models, Runs, close, inspection_of, opened, plotted, served, until
from unrolled import api
from unrolled.serve.inspector import Asked, Inspection


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


def test_a_very_long_text_with_dark_colours(browser: Any, run_of: Runs, data: Path) -> None:
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
