"""Every command that takes a model takes one of the hub."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import warm
from tests.cli.test_generate import SMALL, call
from tests.hub.server import OWNER, Hub, serving
from unrolled.cli import share
from unrolled.errors import Note


@pytest.fixture
def pushed(hub: Hub, run: Path) -> Hub:
    code, said, _ = call("push", run, "anna/book", "--licence", "mit")
    assert (code, said) == (0, "hub:anna/book\n")
    return hub


def test_a_pushed_file_keeps_its_bytes(pushed: Hub, run: Path) -> None:
    files = pushed.repos["anna/book"].files("main")
    assert files is not None
    assert files[1]["model.safetensors"] == (run / "best.safetensors").read_bytes()


def test_run_eval_embed_inspect_words_and_info(pushed: Hub, run: Path, book: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("1 and 2\n3 and 4\n")
    ask = ("--prompt", "3 and", "--max-tokens", "9", "--seed", "0")
    for words in (
        ("run", "MODEL", *ask),
        ("eval", "MODEL", book, "--json"),
        ("embed", "MODEL", lines),
        ("inspect", "MODEL", "1 and 2", "--step", "2"),
        ("words", "MODEL", "a"),
    ):
        here, there = (
            call(*(model if word == "MODEL" else word for word in words)) for model in (run, "hub:anna/book")
        )
        assert here[0] == 0, here
        assert here == there
    told = json.loads(call("info", "hub:anna/book", "--json")[1])
    assert told["file"].endswith("/model.safetensors")
    assert told["data"] == json.loads(call("info", run, "--json")[1])["data"]


def test_fine_tuning(pushed: Hub, book: Path, tmp_path: Path) -> None:
    words: list[str | Path] = ["--train", book, "--init", "hub:anna/book", "--out", tmp_path / "run", *SMALL[4:]]
    assert call("train", "generate", *words)[0] == 0
    assert (tmp_path / "run" / "best.safetensors").exists()


def test_a_licence_is_asked_for(hub: Hub, run: Path) -> None:
    assert call("push", run, "anna/book")[::2] == (
        2,
        "unrolled: Which licence has the model? Say it, such as apache-2.0, mit, cc-by-4.0 or other: "
        "--licence apache-2.0; or publish without one: --licence none.\n",
    )
    assert hub.requests == []
    assert call("push", run, "anna/book", "--licence", "none")[0] == 0
    files = hub.repos["anna/book"].files("main")
    assert files is not None
    assert b"license:" not in files[1]["README.md"]


def test_a_licence_is_typed(hub: Hub, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unrolled.cli.share.sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("unrolled.cli.share.typer.prompt", lambda text: " MIT ")
    with warnings.catch_warnings(action="ignore", category=Note):
        share.push(str(run), "anna/book", share.Said())
    files = hub.repos["anna/book"].files("main")
    assert files is not None
    assert b"license: mit\n" in files[1]["README.md"]


def test_paths_in_the_file_are_told(hub: Hub, run: Path, book: Path) -> None:
    with pytest.warns(UserWarning, match="tells where its data was") as told:
        call("push", run, "anna/book", "--licence", "mit", "--private", "--no-card", "--revision", "v1")
    assert f"data.train={book}" in str(told[0].message)
    assert hub.repos["anna/book"].private
    files = hub.repos["anna/book"].files("v1")
    assert files is not None
    assert "README.md" not in files[1]


def test_in_a_process_of_its_own(run: Path, tmp_path: Path) -> None:
    """The client as a user has it: HF_ENDPOINT and HF_TOKEN in the environment, then HF_HUB_OFFLINE."""
    with serving() as hub:
        env = os.environ | {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "home"),
            "HF_TOKEN": OWNER,
            "HF_HUB_DISABLE_XET": "1",  # the server has no content-addressed store
        }
        ask = ("--prompt", "3 and", "--max-tokens", "9", "--seed", "0")
        pushed = warm.unrolled("push", str(run), "anna/book", "--licence", "apache-2.0", folder=tmp_path, env=env)
        assert (pushed.returncode, pushed.stdout) == (0, "hub:anna/book\n"), pushed.stderr
        here = warm.unrolled("run", str(run), *ask, folder=tmp_path, env=env)
        there = warm.unrolled("run", "hub:anna/book", *ask, folder=tmp_path, env=env)
        assert (there.returncode, there.stdout) == (0, here.stdout), there.stderr
        missing = warm.unrolled("run", "hub:anna/boook", *ask, folder=tmp_path, env=env)
        assert missing.returncode == 2
        assert missing.stderr.startswith("unrolled: hub:anna/boook does not exist, or is private and not yours.")
    offline = warm.unrolled("run", "hub:anna/book", *ask, folder=tmp_path, env=env | {"HF_HUB_OFFLINE": "1"})
    assert (offline.returncode, offline.stdout, offline.stderr) == (0, here.stdout, "")
    gone = warm.unrolled("run", "hub:anna/other", *ask, folder=tmp_path, env=env | {"HF_HUB_OFFLINE": "1"})
    assert (gone.returncode, gone.stderr) == (
        2,
        "unrolled: HF_HUB_OFFLINE is set, and hub:anna/other is on the hub. It was not downloaded before. "
        "Unset it to reach the hub, or use a local file.\n",
    )
