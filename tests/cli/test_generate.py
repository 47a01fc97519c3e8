"""`generate` from the command line, as a user types it, and what every mistake says."""

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


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "book.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def folder(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "book"
    assert call("train", "generate", "--train", book, "--out", path, *SMALL)[0] == 0
    return path


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


def mistakes(book: Path, folder: Path, tmp: Path) -> dict[str, tuple[list[str | Path], str]]:
    """Words to type, and what must be said."""
    empty, blank, one, binary, latin = (
        tmp / n for n in ("empty.txt", "blank.txt", "one.txt", "binary.txt", "latin.txt")
    )
    empty.write_text("")
    blank.write_text(" \n\n ")
    one.write_text("one short line\n")
    binary.write_bytes(b"GIF89a\x00\x01")
    latin.write_bytes("first line\ncaf\xe9 au lait".encode("latin1"))
    (tmp / "three.toml").write_text('task = "generate"\n[model]\nhiden_size = 3\ncell = "lstn"\n[train]\nlr = -1\n')
    (tmp / "foreign.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ")
    (tmp / "cut.safetensors").write_bytes((folder / "best.safetensors").read_bytes()[:-100])
    newer = (folder / "best.safetensors").read_bytes().replace(b'{\\"format\\": 1,', b'{\\"format\\": 9,')
    (tmp / "newer.safetensors").write_bytes(newer)
    other = (
        (folder / "best.safetensors")
        .read_bytes()
        .replace(b'\\"task\\": \\"generate\\", \\"config', b'\\"task\\": \\"generatx\\", \\"config')
        .replace(b'\\"sha256\\"', b'\\"nobody\\"')  # as of an earlier version, without a digest
    )
    (tmp / "other.safetensors").write_bytes(other)
    train: list[str | Path] = ["train", "generate", "--out", tmp / "never", "--train"]
    return {
        "empty": ([*train, empty], f"{empty} is empty. Give a text file with at least a few lines."),
        "blank": ([*train, blank], f"{blank} is empty. Give a text file with at least a few lines."),
        "one line": (
            [*train, one],
            "The training text has 14 tokens, too few for train.batch_size=32 rows. "
            "Use more text, or train.batch_size=1.",
        ),
        "binary": ([*train, binary], f"{binary} is not text: it has a zero byte at offset 6. Give a UTF-8 text file."),
        "not UTF-8": (
            [*train, latin],
            f"{latin} is not UTF-8: byte 0xe9 at offset 14, line 2. "
            f"Convert it, for example: iconv -f latin1 -t utf-8 {latin} > converted.txt",
        ),
        "directory": ([*train, tmp], f"{tmp} is a directory. Give the path of a UTF-8 text file."),
        "missing": (
            [*train, tmp / "nowhere.txt"],
            f"{tmp / 'nowhere.txt'} does not exist. Give the path of a UTF-8 text file.",
        ),
        "three mistakes": (
            ["train", tmp / "three.toml", "--out", tmp / "never"],
            "The config has 3 mistakes:\n"
            f"  {tmp}/three.toml:3: Unknown key 'model.hiden_size'. Did you mean 'model.hidden_size'?\n"
            f"  {tmp}/three.toml:4: Unknown model.cell 'lstn'. Did you mean 'lstm'? Choices: gru, lstm, rnn.\n"
            f"  {tmp}/three.toml:6: train.lr=-1 is out of range. Expected a number above 0.",
        ),
        "bidirectional": (
            [*train, book, "--set", "model.bidirectional=true"],
            "--set: model.bidirectional=true: a language model cannot be bidirectional: its backward half would read "
            "the tokens it has to predict. For a model that writes from right to left use data.direction=backward",
        ),
        "unknown task": (
            ["train", "genrate"],
            f"Unknown task 'genrate'. Did you mean 'generate'? Choices: {', '.join(sorted(TASKS))}.",
        ),
        "nothing to train": (["train"], "What should be trained? Try: unrolled train generate --train book.txt"),
        "twice the same thing": (
            [*train, book, "--set", f"data.train={latin}"],
            "--train and --set data.train are the same thing. Give one of the two.",
        ),
        "another task's option": ([*train, book, "--images", tmp], "--images is not for generate. Leave it out."),
        "resume and more": (
            ["train", "generate", "--resume", folder],
            "--resume continues a run in its own folder, from its own model. Leave out generate.",
        ),
        "resume elsewhere": (
            ["train", "--resume", folder, "--out", tmp / "b", "--init", folder],
            "--resume continues a run in its own folder, from its own model. Leave out --out and --init.",
        ),
        "resume nowhere": (
            ["train", "--resume", tmp / "nowhere"],
            f"{tmp / 'nowhere'} does not exist. Give a folder that `unrolled train` made.",
        ),
        "resume of a file": (
            ["train", "--resume", folder / "best.safetensors"],
            f"{folder / 'best.safetensors'} is a file, and --resume takes a run folder. "
            f"To start a new run from a model: unrolled train TASK --init {folder / 'best.safetensors'}",
        ),
        "resume as another network": (
            ["train", "--resume", folder, "--set", "model.num_layers=7"],
            f"model.num_layers cannot change when a run resumes: {folder} has 1. Leave it out. These can change: "
            "train.epochs, train.max_steps, train.patience, train.eval_every, train.lr, train.clip_norm, "
            "train.clip_value, train.device, train.threads and the paths of the same data.",
        ),
        "resume of nothing": (
            ["train", "--resume", tmp],
            f"{tmp} is not a run folder: it has no config.toml. Give a folder that `unrolled train` made.",
        ),
        "a folder in use": (
            ["train", "generate", "--train", book, "--out", folder],
            f"{folder} exists already. Choose another --out, or resume that run: unrolled train --resume {folder}",
        ),
        "no model": (
            ["run", tmp / "nowhere"],
            f"{tmp / 'nowhere'} does not exist. Give a run folder made by `unrolled train`, or a model file.",
        ),
        "a folder without a model": (
            ["run", tmp],
            f"{tmp} holds no model. Give a run folder made by `unrolled train`, or a model file.",
        ),
        "a text as a model": (["info", book], f"{book} is not a complete model file: "),
        "a truncated model": (
            ["info", tmp / "cut.safetensors"],
            f"{tmp}/cut.safetensors is not a complete model file: ",
        ),
        "a foreign model": (
            ["info", tmp / "foreign.safetensors"],
            f"{tmp}/foreign.safetensors is a safetensors file, but not one of unrolled's. "
            "Give a model that unrolled wrote.",
        ),
        "a newer format": (
            ["info", tmp / "newer.safetensors"],
            f"{tmp}/newer.safetensors has format 9; this version of unrolled reads up to 1. "
            "Upgrade unrolled: the file was written by 0.1.0.",
        ),
        "a model of another task": (
            ["info", tmp / "other.safetensors"],
            f"{tmp}/other.safetensors is a model of the task 'generatx', which is not built in. "
            "Give it: --task FILE.py:CLASS, or load(path, task=MyTask()).",
        ),
        "temperature": (
            ["run", folder, "--temperature", "-1"],
            "temperature=-1.0 is not a number from 0 to 1e6. "
            "Use 0 for the likeliest token, 1 for the model's own distribution.",
        ),
        "format": (["run", folder, "--format", "xml"], "Unknown format 'xml'. Choices: csv, jsonl, text."),
        "a config that is there": (["new", "generate", book], f"{book} exists. Choose another name."),
        "no GPU": (
            [*train, book, "--device", "cuda"],
            "train.device=cuda, but torch finds no GPU here. Use train.device=cpu.",
        ),
        "a device that is none": (
            [*train, book, "--device", "gpu"],
            "Unknown train.device 'gpu'. Did you mean 'cuda'? Choices: auto, cpu, cuda.",
        ),
        "no GPU to run on": (
            ["run", folder, "--prompt", "3", "--device", "cuda"],
            "device=cuda, but torch finds no GPU here. Use device=cpu.",
        ),
        "a text as a task": (
            ["train", book],
            f"{book} is not a task. To train on it: unrolled train generate --train {book}",
        ),
        "a seed": (
            ["run", folder, "--prompt", "3", "--seed", "-1"],
            "seed -1 is not a whole number from 0 up. ",
        ),
        "a run without a model": (
            ["run", _stopped(tmp / "stopped")],
            f"{tmp}/stopped was stopped before its first evaluation: it holds no model yet. "
            f"Resume it: unrolled train --resume {tmp}/stopped",
        ),
        "a folder that is not there": (
            ["new", "generate", tmp / "nodir" / "x.toml"],
            f"{tmp}/nodir/x.toml could not be written: No such file or directory. Choose another place.",
        ),
        "a TOML without a task": (
            ["train", _toml(tmp / "taskless.toml", "[model]\n")],
            f'{tmp}/taskless.toml names no task. Add a first line such as task = "generate".',
        ),
        "an output that cannot be": (
            ["train", "generate", "--train", book, "--out", book / "run"],
            f"{book}/run cannot be created: Not a directory. Choose another --out.",
        ),
    }


def _stopped(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.toml").write_text('task = "generate"')
    return folder


def _toml(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_every_mistake_is_said_and_leaves_nothing(book: Path, folder: Path, tmp_path: Path) -> None:
    for name, (words, message) in mistakes(book, folder, tmp_path).items():
        code, out, err = call(*words)
        assert code == 2, (name, err)
        assert out == "", name
        assert err.startswith(f"unrolled: {message}"), (name, err)
        assert err == f"unrolled: {message}\n" or message.endswith((": ", ". ")), (name, err)
        assert not (tmp_path / "never").exists(), name


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
