"""`generate` from the command line, as a user types it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests import warm
from unrolled import UserError
from unrolled.cli import app as command
from unrolled.model_file import read_about
from unrolled.tasks import TASKS

TEXT = "\n".join(f"{a} and {b} make {a + b}" for a in range(12) for b in range(12)) + "\n"
SMALL = [
    *("--set", "model.hidden_size=12", "--set", "model.num_layers=1", "--set", "train.batch_size=8"),
    *("--set", "train.k1=20", "--set", "train.max_steps=4"),
]


def call(*words: str | Path, given: str = "") -> tuple[int, str, str]:
    """Exit code, standard output and standard error, in this process."""
    runner = CliRunner()
    with pytest.MonkeyPatch.context() as patch:
        code = 0
        captured: list[str] = []

        def run() -> None:
            nonlocal code
            result = runner.invoke(command.app, [str(w) for w in words], input=given)
            captured.extend([result.stdout, result.stderr])
            code = result.exit_code
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                raise result.exception

        patch.setattr(sys, "argv", ["unrolled", *map(str, words)])
        try:
            run()
        except UserError as error:
            return 2, captured[0], f"unrolled: {error}\n"
    return code, captured[0], captured[1]


def test_the_whole_way_in_a_real_process(book: Path, tmp_path: Path) -> None:
    """new, check, train, run, eval, info: each as its own command."""

    def unrolled(*words: str, given: str | None = None) -> str:
        result = warm.unrolled(*words, given=given or "", folder=tmp_path)
        assert result.returncode == 0, result.stderr
        return result.stdout

    unrolled("new", "generate", "my.toml", "--set", "model.hidden_size=8", "--set", f"data.train={book}")
    text = (tmp_path / "my.toml").read_text()
    assert "width of a Transformer. A whole number, 1 or more. Default: 256.\nhidden_size = 8" in text
    assert "train tokens" in unrolled("check", "my.toml", "--set", "train.batch_size=8")
    unrolled("train", "my.toml", "--out", "run", "--set", "train.batch_size=8", "--set", "train.max_steps=3")
    assert unrolled("run", "run", "--prompt", "3 and", "--max-tokens", "5", "--seed", "1").startswith("3 and")
    scores = json.loads(unrolled("eval", "run", str(book), "--json"))
    assert {"nats_per_token", "perplexity", "bits_per_char"} <= set(scores)
    assert "hidden_size = 8" in unrolled("info", "run/best.safetensors")


def test_lines_of_standard_input_are_prompts(folder: Path) -> None:
    code, out, _ = call("run", folder, "--max-tokens", "5", "--seed", "1", "--stop", "\n", given="3 and\n4 and\n")
    assert code == 0
    assert [line[:5] for line in out.splitlines()] == ["3 and", "4 and"]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_other_forms(folder: Path, form: str) -> None:
    code, out, _ = call("run", folder, "--prompt", "3", "--prompt", "4", "--format", form, "--max-tokens", "5")
    assert code == 0
    if form == "jsonl":
        assert [json.loads(line)["prompt"] for line in out.splitlines()] == ["3", "4"]
    else:
        assert out.startswith("prompt,text")


def test_eval_prints_one_json_object_and_nothing_else(folder: Path, book: Path) -> None:
    code, out, _ = call("eval", folder, book, "--json")
    assert code == 0
    assert json.loads(out)["tokens"] == len(TEXT)
    assert out.count("\n") == 1


def test_info_as_json(folder: Path) -> None:
    assert json.loads(call("info", folder, "--json")[1])["task"] == "generate"


def test_resume_goes_on(folder: Path) -> None:
    assert call("train", "--resume", folder)[0] == 0


def test_a_file_without_permission(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_text(TEXT)
    path.chmod(0)
    if os.geteuid() == 0:  # root may read everything

        def refuse(self: Path) -> bytes:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "read_bytes", refuse)
    code, _, err = call("train", "generate", "--train", path, "--out", tmp_path / "run")
    assert code == 2
    assert err == f"unrolled: {path} cannot be read: permission denied. Try: chmod u+r {path}\n"


def test_out_of_memory_names_a_batch_size_that_fits(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss that cannot hold more than two rows: eight are refused, two are named."""
    original: Callable[..., object] = TASKS["generate"].loss

    def hungry(self: object, network: object, batch: object, state: object, training: object = None) -> object:
        if len(batch.inputs) > 2:  # type: ignore[attr-defined]
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory")
        return original(self, network, batch, state, training)

    monkeypatch.setattr(TASKS["generate"], "loss", hungry)
    code, _, err = call("train", "generate", "--train", book, "--out", tmp_path / "run", *SMALL)
    assert code == 2
    assert "Out of memory with train.batch_size=8. Use train.batch_size=2, or a shorter train.k1.\n" in err


def test_the_model_file_says_what_it_is(folder: Path) -> None:
    about = read_about(folder / "best.safetensors")
    assert about.format == 1
    assert set(about.versions) == {"unrolled", "torch", "python"}
    assert about.scores["nats_per_token"] > 0


def test_help_of_every_verb() -> None:
    for verb in ("train", "run", "eval", "words", "new", "check", "info", "doctor"):
        code, out, _ = call(verb, "--help")
        assert code == 0
        assert "Usage" in out
