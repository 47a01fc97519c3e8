"""The page of a recogniser: files, the microphone, streams."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.browser import launched, new_page
from tests.export.web.serving import exported, opened, served, settled, stored_page
from tests.fitting import fitting
from tests.runtime.folders import STORED, exported_of
from tests.tasks.recognition import RATE, SMALL, tone, words, write_recordings
from unrolled import api, runtime

SAID = "ab c bca"
HEAR = """async ([names, options]) => {
  const { openGraphs } = await import("/web/graphs.js");
  const { modelOf } = await import("/web/recognize.js");
  const { readSound } = await import("/web/sound.js");
  const manifest = await (await fetch("/manifest.json")).json();
  const model = modelOf(manifest, (await openGraphs(manifest)).known);
  const found = [];
  for (const name of names) {
    const sound = await readSound(await (await fetch(`/${name}`)).arrayBuffer(), model.rate);
    found.push(await model.answer(sound, options));
  }
  return found;
}"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser whose microphone plays a recording at another rate, with silence around it, again and again."""
    path, rate = tmp_path_factory.mktemp("microphone") / "said.wav", 48000
    quiet = 0.003 * np.random.default_rng(1).standard_normal(rate).astype(np.float32)
    soundfile.write(path, np.concatenate([quiet, tone(SAID, rate=rate, seed=9), quiet]), rate)
    with launched("--use-fake-device-for-media-stream", f"--use-file-for-fake-audio-capture={path}") as opened:
        yield opened


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Recognisers of tones: one of both directions, and one that streams, with recordings beside them."""
    place = tmp_path_factory.mktemp("heard")
    train = write_recordings(place / "sounds", words(60))
    made = {}
    for name, more in (("whole", {}), ("stream", {"model.bidirectional": False, "train.max_steps": 400})):
        keys = fitting("recognize", {**SMALL, **more}, data__kind="audio")
        model = api.train("recognize", train=train, out=place / f"run-{name}", set=keys, quiet=True)
        made[name] = exported(model, place / name)
        write_sounds(made[name])
    return made


def write_sounds(folder: Path) -> None:
    """Recordings of one text in several formats, and a long one."""
    samples = tone(SAID, seed=7)
    for kind in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"):
        soundfile.write(folder / f"{kind}.wav", samples, RATE, subtype=kind)
    soundfile.write(folder / "EXTENSIBLE.wav", samples, RATE, format="WAVEX", subtype="PCM_16")
    soundfile.write(folder / "stereo.wav", np.stack([samples, 0.5 * samples], axis=1), RATE)
    soundfile.write(folder / "short.wav", samples[:100], RATE)
    soundfile.write(folder / "silent.wav", np.zeros(4000, dtype=np.float32), RATE)
    soundfile.write(folder / "faster.wav", tone(SAID, rate=22050, seed=7), 22050)
    soundfile.write(folder / "other.flac", samples, RATE)
    text = " ".join(words(60, seed=3))
    soundfile.write(folder / "long.wav", tone(text, seed=8), RATE)
    assert len(tone(text)) > 35 * RATE


def same(ours: dict[str, Any], theirs: Any) -> None:
    """Check a text, its score, and the times and confidences of its words."""
    assert ours["text"] == theirs.text
    assert ours["score"] == pytest.approx(theirs.score, rel=1e-3, abs=1e-3)
    assert [(one["text"], one["start"], one["end"]) for one in ours["words"]] == [one[:3] for one in theirs.words]
    assert [one["confidence"] for one in ours["words"]] == pytest.approx(
        [one.confidence for one in theirs.words], abs=1e-3
    )


FILES = [
    *(f"{kind}.wav" for kind in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "EXTENSIBLE")),
    "stereo.wav",
    "short.wav",
    "silent.wav",
    "long.wav",
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["whole", "stream"])
def test_files(name: str, folders: dict[str, Path], page: Any) -> None:
    folder = folders[name]
    model = runtime.load(folder)
    assert model.predict(str(folder / "PCM_16.wav")).text == SAID
    with served(folder) as address:
        opened(page, address)
        for beam in (1, 20):
            found = page.evaluate(HEAR, [FILES, {"beam": beam}])
            for file, ours in zip(FILES, found, strict=True):
                same(ours, model.predict(str(folder / file), beam=beam if beam > 1 else None))
        for file in ("faster.wav", "other.flac"):  # resampled by other filters, decoded by the browser
            (ours,) = page.evaluate(HEAR, [[file], {}])
            assert ours["text"] == model.predict(str(folder / file)).text == SAID


def test_a_stored_model(page: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(stored_page("recognize"), tmp_path / "copy")
    shutil.copy(STORED / "sound.wav", folder)
    model = exported_of("recognize")
    with served(folder) as address:
        opened(page, address)
        for beam in (1, 8):
            (ours,) = page.evaluate(HEAR, [["sound.wav"], {"beam": beam}])
            same(ours, model.predict(str(STORED / "sound.wav"), beam=beam if beam > 1 else None))


STREAM = """async ([name, piece]) => {
  const { openGraphs } = await import("/web/graphs.js");
  const { modelOf } = await import("/web/recognize.js");
  const { readSound } = await import("/web/sound.js");
  const manifest = await (await fetch("/manifest.json")).json();
  const model = modelOf(manifest, (await openGraphs(manifest)).known);
  const { samples, rate } = await readSound(await (await fetch(`/${name}`)).arrayBuffer(), model.rate);
  const stream = model.stream(rate);
  const texts = [];
  for (let at = 0; at < samples.length; at += piece) texts.push(await stream.feed(samples.slice(at, at + piece)));
  return { texts, answer: await stream.finish() };
}"""


def test_streams(folders: dict[str, Path], page: Any) -> None:
    folder = folders["stream"]
    samples, _ = soundfile.read(folder / "PCM_16.wav", dtype="float32")
    with runtime.load(folder).stream(rate=RATE) as stream:
        texts = [stream.feed(samples[at : at + 700]) for at in range(0, len(samples), 700)]
        expected = stream.finish()
    with served(folder) as address:
        opened(page, address)
        found = page.evaluate(STREAM, ["PCM_16.wav", 700])
        assert found["texts"] == texts
        assert found["answer"]["text"] == expected.text == SAID
        assert page.evaluate(STREAM, ["short.wav", 30])["answer"]["text"] == ""
        assert page.evaluate(STREAM, ["faster.wav", 1000])["answer"]["text"] == SAID


def test_a_dropped_file(folders: dict[str, Path], page: Any, tmp_path: Path) -> None:
    folder = folders["whole"]
    expected = runtime.load(folder).predict(str(folder / "PCM_16.wav"))
    with served(folder) as address:
        opened(page, address)
        page.set_input_files("#file", folder / "PCM_16.wav")
        page.wait_for_selector(".said")
        settled(page)
        assert page.inner_text(".said") == SAID
        assert page.locator(".chip").all_inner_texts() == [word.text for word in expected.words]
        assert page.inner_text("#status").startswith(f"{len(tone(SAID)) / RATE:.1f} s of sound, answered in ")
        page.fill("#beam", "10")
        page.press("#beam", "Enter")
        settled(page)
        assert page.inner_text(".said") == SAID
        (tmp_path / "noise.wav").write_bytes(b"this is no recording")
        page.set_input_files("#file", tmp_path / "noise.wav")
        page.wait_for_selector("#status.problem")
        assert "not a recording that this browser can read" in page.inner_text("#status")


KEEP = "const make = URL.createObjectURL; URL.createObjectURL = (blob) => { window.kept = blob; return make(blob); };"
KEPT = "async () => Array.from(new Uint8Array(await window.kept.arrayBuffer()))"


@pytest.mark.parametrize("name", ["whole", "stream"])
def test_the_microphone(name: str, folders: dict[str, Path], browser: Any, tmp_path: Path) -> None:
    with served(folders[name]) as address, new_page(browser, permissions=["microphone"]) as page:
        page.add_init_script(KEEP)
        opened(page, address)
        page.click("#record")
        page.wait_for_selector("#record[aria-pressed=true]")
        if name == "stream":  # the text comes while it is heard
            page.wait_for_selector(".said:has-text('bca')")
            assert page.get_attribute("#record", "aria-pressed") == "true"
        else:
            page.wait_for_timeout(6000)
        page.click("#record")
        page.wait_for_selector("#record[aria-pressed=false]")
        page.wait_for_selector(".chip")
        settled(page)
        text = page.inner_text(".said")
        (tmp_path / "recorded.wav").write_bytes(bytes(page.evaluate(KEPT)))
    # the runtime resamples with another filter: where a letter is faint, one of the two may miss it
    assert "bca" in text
    assert "bca" in runtime.load(folders[name]).predict(str(tmp_path / "recorded.wav")).text


def test_no_microphone(folders: dict[str, Path], browser: Any) -> None:
    with served(folders["whole"]) as address, new_page(browser) as page:
        opened(page, address)
        page.click("#record")
        page.wait_for_selector("#status.problem")
        assert page.inner_text("#status").startswith("The microphone cannot be used: ")
        assert page.inner_text("#record") == "Record"
