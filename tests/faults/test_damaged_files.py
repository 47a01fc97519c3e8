"""Damaged and hostile files, one of each kind: a message, never a traceback, and no memory beyond what they fill."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import shutil
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from unrolled import api
from unrolled.data.readers.arrays import read_arrays
from unrolled.data.readers.labelled import read_labelled
from unrolled.data.readers.media.archives import Medium
from unrolled.data.readers.media.audio import read_audio
from unrolled.data.readers.series.read_series import read_series
from unrolled.data.readers.text import read_text
from unrolled.data.signals.line_images import read_line
from unrolled.data.signals.pictures import open_pictures
from unrolled.errors import Note, UserError
from unrolled.model import Model
from unrolled.see.figures.curves import curves
from unrolled.see.views.runs import run_rows
from unrolled.text import Vectors, split_words

Runs = Callable[[str], Path]


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        act()
    assert len(str(caught.value)) < 2000
    return str(caught.value)


def about_of(file: Path) -> dict[str, Any]:
    with safe_open(file, "pt") as opened:
        about: dict[str, Any] = json.loads(opened.metadata()["unrolled"])
    return about


def rewritten(file: Path, out: Path, about: Any) -> Path:
    save_file(load_file(file), out, {"unrolled": about if isinstance(about, str) else json.dumps(about)})
    return out


@pytest.fixture
def file(run_of: Runs) -> Path:
    return run_of("generate-rnn") / "best.safetensors"


def test_a_flipped_byte_anywhere_is_refused(file: Path, tmp_path: Path) -> None:
    """Also in a vocabulary: its token would be another one without a word."""
    whole = file.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    damaged = tmp_path / "damaged.safetensors"
    for at in [*np.linspace(start, len(whole) - 1, 25, dtype=int).tolist(), start + 3]:
        damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert refusal(lambda: api.load(damaged)) == (
            f"{damaged} is damaged: its weights are not those it was written with. "
            "The file was changed after it was written: use another copy of it."
        )
    changed = whole.replace(b'\\"d\\"', b'\\"D\\"', 1)
    assert changed != whole
    damaged.write_bytes(changed)
    assert "is damaged: its config and vocabularies are not those it was written with." in refusal(
        lambda: api.load(damaged)
    )


def test_two_tensors_that_changed_places_are_refused(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])
    same = [name for name in header if name.endswith(("bias_ih_l0", "bias_hh_l0"))]
    assert len(same) == 2
    header[same[0]], header[same[1]] = header[same[1]], header[same[0]]
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    out = tmp_path / "swapped.safetensors"
    out.write_bytes(len(raw).to_bytes(8, "little") + raw + whole[8 + size :])
    assert "its weights are not those it was written with" in refusal(lambda: api.load(out))


def test_files_without_digests_load_and_answer_the_same(file: Path, tmp_path: Path) -> None:
    about = about_of(file)
    del about["sha256"]
    older = api.load(rewritten(file, tmp_path / "older.safetensors", about))
    assert older.log_prob(["3 and 4"]) == api.load(file).log_prob(["3 and 4"])
    assert about["format"] == 1  # older versions read new files: they know no further keys


def without(key: str) -> Callable[[dict[str, Any]], Any]:
    return lambda about: {name: value for name, value in about.items() if name != key}


def with_(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda about: {**about, key: value}


METADATA: list[Callable[[dict[str, Any]], Any]] = [
    lambda about: "",
    lambda about: "{",
    lambda about: "[]",
    lambda about: "null",
    lambda about: "[" * 100_000,
    *(without(key) for key in ("format", "task", "config", "assets", "scores", "versions")),
    with_("format", "1"),
    with_("format", None),
    with_("format", 0),
    with_("task", 3),
    with_("config", []),
    with_("assets", 7),
    with_("assets", {}),
    with_("assets", {"level": "char", "lowercase": False, "vocabulary": {"tokens": [1], "specials": []}}),
    with_("scores", "good"),
    with_("scores", {"loss": "low"}),
    with_("versions", None),
    with_("versions", {"unrolled": 3}),
]


@pytest.mark.parametrize("change", METADATA)
def test_metadata_of_any_other_form_is_refused(change: Any, file: Path, tmp_path: Path) -> None:
    about = about_of(file)
    del about["sha256"]
    said = refusal(lambda: api.load(rewritten(file, tmp_path / "m.safetensors", change(about))))
    assert "m.safetensors" in said


@pytest.mark.parametrize(
    "keys", [{"hidden_size": 10**9}, {"hidden_size": 200_000}, {"num_layers": 10**6}, {"embedding_size": 10**12}]
)
def test_sizes_far_beyond_the_weights_are_refused_before_anything_is_made(
    keys: dict[str, int], file: Path, tmp_path: Path
) -> None:
    about = about_of(file)
    del about["sha256"]
    about["config"]["model"].update(keys)
    assert "is damaged" in refusal(lambda: api.load(rewritten(file, tmp_path / "m.safetensors", about)))


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        ("classify", lambda assets: assets.pop("labels")),
        ("classify", lambda assets: assets.update(labels=[1, 2])),
        ("classify", lambda assets: assets.update(counts=[1])),
        ("classify", lambda assets: assets["reader"].update(vector_size="x")),
        ("tag-crf", lambda assets: assets.update(scheme="xyz")),
        ("tag-crf", lambda assets: assets.update(untrained=[1])),
        ("tag-crf", lambda assets: assets.update(features=[3])),
        ("forecast", lambda assets: assets["roles"].update(inputs="a")),
        ("forecast", lambda assets: assets.update(scale=[0.0, 0.0])),
        ("forecast", lambda assets: assets.update(center=[])),
        ("translate-luong", lambda assets: assets["source"].update(form=["NFC"])),
        ("translate-luong", lambda assets: assets.update(ratio=None)),
        ("recognize", lambda assets: assets["reader"].update(rate=10**12)),
        ("recognize", lambda assets: assets["reader"].update(shape=[])),
        ("recognize", lambda assets: assets["labels"].update(names=[1])),
        ("caption", lambda assets: assets["shape"].update(sizes=["a"])),
        ("caption", lambda assets: assets.update(longest=1e400)),
    ],
)
def test_assets_of_every_task_are_checked(kind: str, damage: Any, run_of: Runs, tmp_path: Path) -> None:
    whole = run_of(kind) / "best.safetensors"
    about = about_of(whole)
    del about["sha256"]
    damage(about["assets"])
    said = refusal(lambda: api.load(rewritten(whole, tmp_path / "m.safetensors", about)))
    assert "damaged" in said
    assert "m.safetensors" in said


SETTINGS = {
    "model.hidden_size": 8,
    "model.embedding_size": 4,
    "train.k1": 10,
    "train.batch_size": 4,
    "train.max_steps": 4,
    "train.eval_every": 2,
}


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    api.train("generate", train=data / "book.txt", out=folder, set=SETTINGS, quiet=True)
    return folder


STATES: list[bytes | Callable[[dict[str, Any]], Any]] = [
    b"",
    b"{",
    b"[]",
    b"\xff\xfe",
    b'{"format": 1}',
    b"[" * 100_000,
    lambda document: {**document, "format": "x"},
    lambda document: {**document, "state": []},
    lambda document: {**document, "state": {"dict": 3}},
    lambda document: {**document, "state": {"dict": [["network", {"tensor": "none"}]]}},
]


@pytest.mark.parametrize("change", STATES)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(change: Any, run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    path = copy / "checkpoint" / "state.json"
    content = change if isinstance(change, bytes) else json.dumps(change(json.loads(path.read_bytes()))).encode()
    path.write_bytes(content)
    model = api.resume(copy, quiet=True)
    assert isinstance(model, Model)
    assert (copy / "best.safetensors").read_bytes() == (run / "best.safetensors").read_bytes()
    for name in ("checkpoint", "checkpoint.previous"):
        (copy / name / "state.json").write_bytes(content)
    assert "cannot be used" in refusal(lambda: api.resume(copy, quiet=True))


def test_a_changed_state_is_noticed_and_an_older_one_that_does_not_fit_is_told(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "checkpoint.previous")
    path = copy / "checkpoint" / "state.json"
    document = json.loads(path.read_bytes())
    entries = document["state"]["dict"]
    document["state"]["dict"] = [entry for entry in entries if entry[0] != "optimizer"]
    path.write_text(json.dumps(document))
    assert "its state.json was changed" in refusal(lambda: api.resume(copy, quiet=True))
    del document["state_sha256"]
    path.write_text(json.dumps(document))
    assert "does not fit its config: KeyError, 'optimizer'" in refusal(lambda: api.resume(copy, quiet=True))


def test_damaged_lines_of_a_run_are_left_out_and_said(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    rows = (copy / "metrics.jsonl").read_bytes()
    (copy / "metrics.jsonl").write_bytes(rows + b'{"step": "x"}\n\xff\xfe\n' + b"[" * 100_000 + b"\n[]\n")
    with pytest.warns(Note, match=r"metrics\.jsonl:3 is damaged and not shown\."):
        assert run_rows(copy)["step"] == run_rows(run)["step"]
    (copy / "updates.csv").write_text("step,loss\n1,x\n")
    (copy / "config.toml").write_bytes(b"\xff")
    with pytest.warns(Note, match=r"updates\.csv is damaged and not shown: "):
        assert run_rows(copy)["updates"] is None
    with pytest.warns(Note, match=r"updates\.csv is damaged and not shown: "):
        assert curves(copy, "perplexity") is None


def npy(header: str, body: bytes = b"") -> bytes:
    raw = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(raw).to_bytes(2, "little") + raw + body


def npz(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


WHOLE = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }"
ARRAYS = {
    "text": (b"hello", "frames is not an array: its header cannot be read"),
    "7 TiB": (npy(WHOLE.replace("(2, 1)", "(1000000000000, 2)"), bytes(8)), "declares 8,000,000,000,000 bytes"),
    "brackets": (npy(WHOLE.replace("(2, 1)", "(2, 1")), "its header cannot be read"),
    "nesting": (npy("(" * 3000), "its header cannot be read"),
    "negative": (npy(WHOLE.replace("(2, 1)", "(-2, -1)"), bytes(8)), "declares shape"),
    "objects": (npy(WHOLE.replace("<f4", "|O"), bytes(8)), "holds Python objects, which are not read"),
    "characters": (
        npy(WHOLE.replace("<f4", "<U1"), b"\xff\xff\xff\x7f" * 2),
        "text with invalid code points",
    ),
    "cut": (npy(WHOLE, bytes(4)), "declares 8 bytes of numbers, and there are 4"),
}


@pytest.mark.parametrize(("content", "message"), ARRAYS.values(), ids=list(ARRAYS))
def test_arrays_that_are_none(content: bytes, message: str, tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", frames=content, labels=content)
    assert message in refusal(lambda: read_labelled(path))
    said = refusal(lambda: Vectors.read(npz(tmp_path / "v.npz", vectors=content, words=content)))
    assert message.replace("frames", "vectors") in said


@pytest.mark.parametrize("kind", [">f4", "<f8", "<f2", np.longdouble])
def test_numbers_of_any_machine_are_read(kind: Any, tmp_path: Path) -> None:
    table = np.arange(6).reshape(3, 2) / 2
    np.savez(tmp_path / "a.npz", frames=table.astype(kind))
    found = read_arrays(tmp_path / "a.npz", ["frames"])["frames"]
    assert torch.from_numpy(found).tolist() == table.tolist()


def test_an_archive_that_declares_more_than_it_can_hold(tmp_path: Path) -> None:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("frames.npy", npy(WHOLE, bytes(8)))
    content = bytearray(raw.getvalue())
    at = content.index(b"PK\x01\x02") + 24
    content[at : at + 4] = (2**31).to_bytes(4, "little")  # its size when it is unpacked
    (tmp_path / "a.npz").write_bytes(content)
    assert "frames declares more bytes than it can hold" in refusal(lambda: read_arrays(tmp_path / "a.npz", ["frames"]))


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, '{"label": "a", "text": "\\ud800"}'])
def test_nesting_and_half_characters_in_json(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(content + "\n")
    assert f"{path}:1 is not JSON: it " in refusal(lambda: read_labelled(path))
    assert f"{path}:1 is not JSON: it " in refusal(lambda: read_series(path))


def test_nesting_in_a_config(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("a = " + "[" * 100_000)
    assert "nested too deeply" in refusal(lambda: api.configure(path))
    path.write_text('task = ["generate"]\n')
    assert "Unknown task ['generate']" in refusal(lambda: api.configure(path))


def test_a_recording_whose_head_declares_years(tmp_path: Path) -> None:
    path = tmp_path / "a.flac"
    soundfile.write(path, np.zeros(800, dtype=np.float32), 8000)
    raw = bytearray(path.read_bytes())
    raw[21] |= 0x0F  # the last 36 bits of these 8 bytes are the number of samples
    raw[22:26] = b"\xff" * 4
    path.write_bytes(raw)
    with contextlib.suppress(UserError):
        assert len(read_audio(Medium(path), 8000)) == 800


def test_a_small_picture_of_many_pixels(tmp_path: Path) -> None:
    path = tmp_path / "a.gif"
    Image.new("L", (8, 8)).save(path)
    raw = bytearray(path.read_bytes())
    raw[6:10] = b"\x00\x10\x00\x81"  # 4,096 by 33,024
    path.write_bytes(raw)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's own
        assert "4096 × 33024 pixels: too many for one line" in refusal(lambda: read_line(Medium(path), 48))
        assert "has too many pixels" in refusal(lambda: open_pictures(path, single=True).read("a.gif", "here"))


def test_a_small_file_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unrolled.text.packed.LARGEST", 10_000)
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"a" * 200_000, mtime=0))
    assert f"{path} has {path.stat().st_size:,} bytes and unpacks to more than" in refusal(lambda: read_text(path))
    path.write_bytes(gzip.compress(b"some text\n" * 10))
    assert read_text(path) == "some text\n" * 10


def test_corrupt_pages_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = [f"some words {number * 7919}" for number in range(200)]
    pq.write_table(pa.table({"label": ["a", "b"] * 100, "text": texts}), path, use_dictionary=False)
    whole = path.read_bytes()
    refused = 0
    for at in range(10, 2000, 100):
        path.write_bytes(whole[:at] + bytes(60) + whole[at + 60 :])
        with contextlib.suppress(UserError):
            read_labelled(path)
            continue
        refused += 1
        assert str(path) in refusal(lambda: read_labelled(path))
    assert refused


@pytest.mark.parametrize("kind", ["generate-rnn", "classify", "tag-crf", "translate-luong"])
def test_half_a_character_in_a_prompt(kind: str, model_of: Callable[[str], Model]) -> None:
    said = refusal(lambda: model_of(kind).predict("one \udcff two"))
    assert said.startswith("The text has half a character at position")
    with pytest.raises(UserError, match="half a character"):
        split_words("\ud800")
