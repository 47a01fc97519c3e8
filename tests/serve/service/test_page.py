"""The page at `/` in a real browser: every task, the microphone, keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.browser import launched, new_page
from tests.see.models import KINDS
from tests.serve.inspector.browsing import until
from tests.serve.service.serving import served
from tests.tasks.recognition import tone
from unrolled import api
from unrolled.errors import UserError
from unrolled.model import Model

soundfile = pytest.importorskip("soundfile", reason="soundfile, which reads recordings, is missing")

SAID = "ab c bca"
EVERY = ["classify", "tag-crf", "generate-lstm", "translate-luong", "forecast", "caption", "recognize-transformer"]
KEY = "0123456789abcdef0123"
Runs = Callable[[str], Path]
Models = Callable[[str], Model]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser whose microphone plays a recording, with silence around it, again and again."""
    path, rate = tmp_path_factory.mktemp("microphone") / "said.wav", 48000
    quiet = 0.003 * np.random.default_rng(1).standard_normal(rate // 2).astype(np.float32)
    soundfile.write(path, np.concatenate([quiet, tone(SAID, rate=rate, seed=9), quiet]), rate)
    with launched("--use-fake-device-for-media-stream", f"--use-file-for-fake-audio-capture={path}") as opened:
        yield opened


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page where a script error, a refusal of the policy or a request to another site fails the test."""
    with new_page(browser, permissions=["microphone"]) as opened:
        wrong: list[str] = []
        opened.on("console", lambda line: wrong.append(line.text) if "Content Security Policy" in line.text else None)
        yield opened
        assert wrong == []


def run(page: Any, name: str, text: str | None = None, file: Path | None = None) -> str:
    """Choose a model, give it an input, and wait for the answer."""
    page.click(f'[data-model="{name}"]')
    if text is not None:
        page.fill("#text", text)
    if file is not None:
        page.set_input_files("#file", file)
    return answered(page)


def answered(page: Any) -> str:
    page.click("#run")
    until(page, "document.querySelector('#answer').childElementCount > 0 && document.querySelector('#stop').hidden")
    assert page.query_selector(".problem") is None, page.text_content("#answer")
    assert re.match(r"[\d.]+ m?s", page.text_content("#time"))
    found: str = page.text_content("#answer")
    return found


def test_every_task(page: Any, run_of: Runs, model_of: Models, data: Path) -> None:
    with served({name: run_of(name) for name in EVERY}) as address:
        page.goto(address)
        page.wait_for_selector("#form:not([hidden])")
        text = KINDS["classify"][3]
        assert run(page, "classify", text).startswith(model_of("classify").predict(text).label)
        sentence = KINDS["tag-crf"][3]
        run(page, "tag-crf", sentence)
        chips = page.evaluate("[...document.querySelectorAll('.chips li')].map(one => one.firstChild.data)")
        assert chips == sentence.split()
        best = model_of("translate-luong").predict("3 5 7")
        assert page.evaluate("location.hash") == "#tag-crf"
        assert run(page, "translate-luong", "3 5 7").startswith(best.text or "(nothing)")
        waves = (data / "waves.csv").read_text()
        run(page, "forecast", waves)
        rows = np.loadtxt(data / "waves.csv", delimiter=",", skiprows=1)
        expected = np.atleast_2d(model_of("forecast").predict(rows))
        shown = page.evaluate("[...document.querySelectorAll('#answer td')].map(one => one.textContent)")
        numbers = [float(one.replace("−", "-").replace(",", "")) for one in shown]
        np.testing.assert_allclose(numbers, expected.ravel(), rtol=1e-4, atol=1e-5)
        assert len(page.query_selector_all("polyline")) == 4
        picture = data / "pictures/0.png"
        caption = model_of("caption").predict(str(picture))
        assert run(page, "caption", file=picture).startswith(caption.text or "(nothing)")
        line = data / "lines/train0.png"
        read = model_of("recognize-transformer").predict(str(line))
        assert run(page, "recognize-transformer", file=line).startswith(read.text or "(nothing)")


def test_text_is_written_along_with_options(page: Any, run_of: Runs, model_of: Models) -> None:
    prompt = "<img src=x onerror='document.title=1'> 3"
    with served({"book": run_of("generate-lstm")}) as address:
        page.goto(address)
        page.wait_for_selector("#form:not([hidden])")
        page.click("#more summary")
        page.fill('[name="seed"]', "4")
        page.fill('[name="max_tokens"]', "60")
        page.fill("#text", prompt)
        assert answered(page) == prompt + model_of("generate-lstm").predict(prompt, seed=4, max_tokens=60)
        assert page.query_selector("#answer img") is None
        assert "60 tokens" in page.text_content("#time")
        assert f"curl {address}v1/completions -N" in page.text_content("#request pre")
        page.fill('[name="max_tokens"]', "4096")
        page.click("#run")
        page.wait_for_selector(".written")
        page.click("#stop")
        until(page, "document.querySelector('#time').textContent === 'stopped'")
        page.fill('[name="beam"]', "3")  # a search, and an option that goes with it only badly
        page.click("#run")
        page.wait_for_selector(".problem")
        with pytest.raises(UserError) as caught:
            model_of("generate-lstm").predict(prompt, seed=4, beam=3)
        assert page.text_content(".problem") == str(caught.value)


def test_the_microphone_with_a_key(page: Any, listener: Path, tmp_path: Path) -> None:
    keys, said = tmp_path / "keys.txt", tmp_path / "said.wav"
    keys.write_text(f"ana {KEY}\n")
    soundfile.write(said, tone(SAID, seed=9), 8000)
    with served({"heard": listener}, api_key_file=keys) as address:
        page.goto(address)
        page.wait_for_selector("#keys:not([hidden])")
        page.fill("#key", "wrong")
        page.click("#keys button")
        page.wait_for_selector(".problem")
        assert "The API key is not known." in page.text_content(".problem")
        page.fill("#key", KEY)
        page.click("#keys button")
        page.wait_for_selector("#form:not([hidden])")
        assert page.is_hidden("#keys")
        expected = api.load(listener).predict(str(said)).text
        assert run(page, "heard", file=said).startswith(expected)
        page.click("#record")
        page.wait_for_timeout(2500)
        page.click("#record")
        page.wait_for_selector(".shown audio")
        assert len(answered(page)) > 5
        assert KEY not in page.text_content("#request pre")
