"""Recordings and pictures from files and archives, and what is said of those that cannot be read."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from unrolled.data.readers.media.archives import Medium
from unrolled.data.readers.media.audio import audio_blocks, audio_facts, is_silent, read_audio
from unrolled.data.readers.media.transcripts import read_transcripts
from unrolled.data.signals.line_images import line_facts, prepared_line, read_line
from unrolled.errors import UserError


def noise(size: int, seed: int = 0) -> np.ndarray:
    return (0.1 * np.random.default_rng(seed).standard_normal(size)).astype(np.float32)


def test_a_member_of_an_archive_is_a_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "sounds.zip", "w") as archive:
        file = io.BytesIO()
        soundfile.write(file, noise(800), 8000, format="WAV", subtype="FLOAT")
        archive.writestr("deep/er/a.wav", file.getvalue())
    medium = Medium.named("sounds.zip/deep/er/a.wav", tmp_path, "list.tsv:3")
    assert medium.kind == "audio"
    assert audio_facts(medium) == (8000, 1, 800)
    assert np.array_equal(read_audio(medium, 8000), noise(800))
    assert str(medium) == f"list.tsv:3: {tmp_path}/sounds.zip/deep/er/a.wav"


def test_channels_are_averaged_and_rates_changed(tmp_path: Path) -> None:
    time = np.arange(44_100) / 44_100
    sound = np.stack([np.sin(2 * np.pi * 440 * time), np.zeros_like(time)], axis=1)
    soundfile.write(tmp_path / "a.flac", sound, 44_100)
    samples = read_audio(Medium(tmp_path / "a.flac"), 16_000)
    assert len(samples) == 16_000
    middle = slice(1000, 15_000)
    expected = 0.5 * np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000)
    assert np.abs(samples - expected)[middle].max() < 1e-3


@pytest.mark.parametrize("rate", [8000, 11_025, 44_100])
def test_blocks_are_the_whole(rate: int, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", noise(3 * rate + 17), rate)
    medium = Medium(tmp_path / "a.wav")
    whole = read_audio(medium, 8000)
    pieces = np.concatenate(list(audio_blocks(medium, 8000, 0.4)))
    assert abs(len(pieces) - len(whole)) <= 1
    size = min(len(pieces), len(whole))
    assert np.abs(pieces[:size] - whole[:size]).max() < 1e-3


def test_silence() -> None:
    assert is_silent(np.zeros(10, dtype=np.float32))
    assert is_silent(np.zeros(0, dtype=np.float32))
    assert not is_silent(noise(10))


def broken(tmp_path: Path, name: str, data: bytes) -> Medium:
    (tmp_path / name).write_bytes(data)
    return Medium.named(name, tmp_path, "list.tsv:7")


def test_unreadable_files_are_named_with_their_row(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"list\.tsv:7: .*a\.wav is not a readable recording: Format not recognised"):
        read_audio(broken(tmp_path, "a.wav", b"RIFF nothing"), 8000)
    with pytest.raises(UserError, match=r"list\.tsv:7: .*a\.png is not a readable picture"):
        line_facts(broken(tmp_path, "a.png", b"PNG nothing"))
    with pytest.raises(UserError, match=r"list\.tsv:7: .*a\.png is damaged or cut off"):
        line_facts(broken(tmp_path, "a.png", b"\x89PNG\r\n\x1a\n"))
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 200), dtype=np.uint8)).save(file, "PNG")
    half = broken(tmp_path, "half.png", file.getvalue()[:3000])
    assert line_facts(half) == (200, 40)
    with pytest.raises(UserError, match=r"list\.tsv:7: .*half\.png is damaged: "):
        read_line(half, 48)
    with pytest.raises(UserError, match=r"list\.tsv:7: .*none\.wav does not exist\. Give the path of a recording"):
        read_audio(Medium.named("none.wav", tmp_path, "list.tsv:7"), 8000)
    broken(tmp_path, "b.zip", b"PK no")
    with pytest.raises(UserError, match=r"b\.zip is not a zip archive: "):
        Medium.named("b.zip/a.wav", tmp_path).read()
    with pytest.raises(UserError, match=r"Unknown kind of file at list\.tsv:7: .*: '\.doc'\."):
        _ = broken(tmp_path, "a.doc", b"").kind
    soundfile.write(tmp_path / "nan.wav", np.full(100, np.nan), 8000, subtype="FLOAT")
    with pytest.raises(UserError, match=r"nan\.wav holds samples that are not finite"):
        read_audio(Medium(tmp_path / "nan.wav"), 8000)


@pytest.mark.parametrize(("package", "kind"), [("soundfile", "Recordings"), ("PIL", "Pictures")])
def test_a_missing_package_is_named(package: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    soundfile.write(tmp_path / "a.wav", noise(100), 8000)
    with pytest.raises(UserError, match=rf"{kind} need the package .*pip install 'unrolled\["):
        (audio_facts if package == "soundfile" else line_facts)(Medium(tmp_path / "a.wav"))


def test_every_kind_of_picture_gives_the_same_line(tmp_path: Path) -> None:
    """Dark on light or light on dark, grey, coloured, of one bit, of sixteen, with transparent paper."""
    grey = np.full((30, 90), 255, dtype=np.uint8)
    grey[10:20, 20:70:7] = 0
    picture = Image.fromarray(grey)
    clear = Image.merge("LA", [Image.new("L", picture.size, 0), Image.fromarray(255 - grey)])
    kinds = {
        "grey.png": picture,
        "light.png": Image.fromarray(255 - grey),
        "colour.png": picture.convert("RGB"),
        "bit.png": picture.convert("1"),
        "deep.png": Image.fromarray(grey.astype(np.uint16) * 257),
        "clear.png": clear,
        "palette.gif": picture.convert("P"),
        "page.tif": picture,
    }
    lines = {}
    for name, one in kinds.items():
        one.save(tmp_path / name)
        lines[name] = read_line(Medium(tmp_path / name), 24, center=False)
    for name, line in lines.items():
        assert line.columns.shape == (72, 24), name
        assert np.abs(line.columns.astype(int) - lines["grey.png"].columns).max() <= 1, name
        assert line.scale == pytest.approx(0.8)


def test_a_crooked_line_is_straightened_and_scaled() -> None:
    """The same letters, with more white above, larger, and going uphill, look alike."""
    letters = np.zeros((20, 400), dtype=np.uint8)
    letters[:, ::8] = 255
    letters[5:10, 3::16] = 255
    plain = 255 - np.pad(letters, ((10, 10), (0, 0)))
    high = 255 - np.pad(letters, ((60, 5), (0, 0)))
    uphill = np.zeros((80, 400), dtype=np.uint8)
    for column in range(400):
        top = 40 - column // 40
        uphill[top : top + 20, column] = letters[:, column]
    large = np.kron(plain, np.ones((3, 3), dtype=np.uint8))
    lines = [prepared_line(one, 32).columns for one in (plain, high, 255 - uphill, large)]
    for one in lines:
        assert abs(len(one) / len(lines[0]) - 1) < 0.08
        ink = one.astype(float).sum(axis=0)
        middle = (ink * np.arange(32)).sum() / ink.sum()
        assert abs(middle - 15.5) < 1.5
        assert ink[:4].sum() < 0.02 * ink.sum()


def test_a_picture_that_is_no_line() -> None:
    with pytest.raises(UserError, match="The picture has shape"):
        prepared_line(np.zeros((0, 5), dtype=np.uint8), 48)
    with pytest.raises(UserError, match="is 5000 by 2: 2500 times as wide as high"):
        prepared_line(np.zeros((2, 5000), dtype=np.uint8), 48, center=False)
    white = prepared_line(np.full((40, 100), 255, dtype=np.uint8), 48)
    assert not white.columns.any()


def test_manifests_of_every_kind(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("x/1.wav\t two  words \n/abs/2.wav\tcafe\u0301\n")
    found = read_transcripts(tmp_path / "a.tsv")
    assert [example.text for example in found] == ["two words", "café"]
    assert [str(e.input.path) for e in found if isinstance(e.input, Medium)] == [f"{tmp_path}/x/1.wav", "/abs/2.wav"]
    assert found[1].place == f"{tmp_path}/a.tsv:2"
    (tmp_path / "a.jsonl").write_text('{"file": "1.png", "text": "x"}\n')
    assert read_transcripts(tmp_path / "a.jsonl")[0].text == "x"
    (tmp_path / "a.csv").write_text("speaker,file,said\nme,1.wav,hello\n")
    assert read_transcripts(tmp_path / "a.csv", text_column="said")[0].text == "hello"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "one.wav\n", r"a\.tsv:1 has no tab: 'one\.wav'\. Expected 2 columns"),
        ("a.jsonl", '{"file": "1.wav"}\n', r"a\.jsonl:1 has no 'text'\. It has: file\."),
        ("a.jsonl", '{"file": "1.wav", "text": 3}\n', r"a\.jsonl:1: the transcript is int\. Expected a string\."),
        ("a.jsonl", '{"file": "", "text": "x"}\n', r"a\.jsonl:1 names no file\."),
        ("a.csv", "file,mood\n1.wav,x\n", r"a\.csv:1 has no column 'text'\. Its first row: file, mood\."),
        ("a.tsv", "", r"a\.tsv is empty\."),
    ],
)
def test_manifests_that_are_none(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message):
        read_transcripts(tmp_path / name)


def test_frames_need_texts(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", frames=np.zeros((2, 5, 3)))
    with pytest.raises(UserError, match=r"a\.npz has no array 'texts'\. It has: frames\."):
        read_transcripts(tmp_path / "a.npz")
