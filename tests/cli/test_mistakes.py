"""Every mistake on the command line is one message, exit code 2 and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_generate import call
from unrolled.tasks import TASKS

Mistakes = dict[str, tuple[list[str | Path], str]]  # the arguments, and the message


def data(book: Path, folder: Path, tmp: Path) -> Mistakes:
    """Files that cannot be trained on."""
    texts = {"empty": b"", "blank": b" \n\n ", "one": b"one short line\n", "binary": b"GIF89a\x00\x01"}
    texts["latin"] = "first line\ncaf\xe9 au lait".encode("latin1")
    empty, blank, one, binary, latin = (_file(tmp / f"{name}.txt", content) for name, content in texts.items())
    (hollow := tmp / "hollow").mkdir(exist_ok=True)
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
        "directory": ([*train, hollow], f"The folder {hollow} holds no data. Expected files in it."),
        "missing": (
            [*train, tmp / "nowhere.txt"],
            f"{tmp / 'nowhere.txt'} does not exist. Give the path of a UTF-8 text file.",
        ),
    }


def configs(book: Path, folder: Path, tmp: Path) -> Mistakes:
    """Configs, tasks and flags of `train`, `new` and `check`."""
    _file(tmp / "three.toml", b'task = "generate"\n[model]\nhiden_size = 3\ncell = "lstn"\n[train]\nlr = -1\n')
    train: list[str | Path] = ["train", "generate", "--out", tmp / "never", "--train"]
    return {
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
        "bidirectional decoder": (
            ["train", "translate", "--out", tmp / "never", "--set", "model.decoder.bidirectional=true"],
            "--set: model.decoder.bidirectional=true: a decoder cannot be bidirectional: its backward half would read "
            "the tokens it has to write. The encoder of a translator can: model.encoder.bidirectional",
        ),
        "bidirectional captioner": (
            ["train", "caption", "--out", tmp / "never", "--set", "model.decoder.bidirectional=true"],
            "--set: model.decoder.bidirectional=true: a decoder cannot be bidirectional: its backward half would read "
            "the tokens it has to write. The encoder of a translator can: model.encoder.bidirectional",
        ),
        "unknown task": (
            ["train", "genrate"],
            f"Unknown task 'genrate'. Did you mean 'generate'? Choices: {', '.join(sorted(TASKS))}.",
        ),
        "nothing to train": (["train"], "What should be trained? Try: unrolled train generate --train book.txt"),
        "twice the same thing": (
            [*train, book, "--set", "data.train=other.txt"],
            "--train and --set data.train are the same thing. Give one of the two.",
        ),
        "another task's option": ([*train, book, "--images", tmp], "--images is not for generate. It takes --workers."),
        "a config that is there": (["new", "generate", book], f"{book} exists. Choose another name."),
        "no GPU": (
            [*train, book, "--device", "cuda"],
            "train.device=cuda, but torch finds no GPU here. Use train.device=cpu.",
        ),
        "a device that is none": (
            [*train, book, "--device", "gpu"],
            "Unknown train.device 'gpu'. Did you mean 'cuda'? Choices: auto, cpu, cuda.",
        ),
        "a text as a task": (
            ["train", book],
            f"{book} is not a task. To train on it: unrolled train generate --train {book}",
        ),
        "a folder that is not there": (
            ["new", "generate", tmp / "nodir" / "x.toml"],
            f"{tmp}/nodir/x.toml could not be written: No such file or directory. Choose another place.",
        ),
        "a TOML without a task": (
            ["train", _file(tmp / "taskless.toml", b"[model]\n")],
            f'{tmp}/taskless.toml names no task. Add a first line such as task = "generate".',
        ),
    }


def folders(book: Path, folder: Path, tmp: Path) -> Mistakes:
    """Run folders: --resume and --out."""
    _file(tmp / "notes.txt", b"not a run")
    return {
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
            "train.clip_value, train.device, train.threads, train.backend, train.timeout, train.log and the paths of "
            "the same data.",
        ),
        "resume of nothing": (
            ["train", "--resume", tmp],
            f"{tmp} is not a run folder: it has no config.toml. Give a folder that `unrolled train` made.",
        ),
        "a folder in use": (
            ["train", "generate", "--train", book, "--out", folder],
            f"{folder} exists already. Choose another --out, or resume that run: unrolled train --resume {folder}",
        ),
        "an output that cannot be": (
            ["train", "generate", "--train", book, "--out", book / "run"],
            f"{book}/run cannot be created: Not a directory. Choose another --out.",
        ),
    }


def models(book: Path, folder: Path, tmp: Path) -> Mistakes:
    """Files that are not models of this version."""
    model = (folder / "best.safetensors").read_bytes()
    _file(tmp / "foreign.safetensors", b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ")
    _file(tmp / "cut.safetensors", model[:-100])
    _file(tmp / "newer.safetensors", model.replace(b'{\\"format\\": 1,', b'{\\"format\\": 9,'))
    other = model.replace(b'\\"task\\": \\"generate\\", \\"config', b'\\"task\\": \\"generatx\\", \\"config')
    other = other.replace(b'\\"sha256\\"', b'\\"nobody\\"')  # as of an earlier version, without a digest
    _file(tmp / "other.safetensors", other)
    return {
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
        "a run without a model": (
            ["run", _file(tmp / "stopped" / "config.toml", b'task = "generate"').parent],
            f"{tmp}/stopped was stopped before its first evaluation: it holds no model yet. "
            f"Resume it: unrolled train --resume {tmp}/stopped",
        ),
    }


def runs(book: Path, folder: Path, tmp: Path) -> Mistakes:
    """Options of `run`."""
    return {
        "temperature": (
            ["run", folder, "--temperature", "-1"],
            "temperature=-1.0 is not a number from 0 to 1e6. "
            "Use 0 for the likeliest token, 1 for the model's own distribution.",
        ),
        "format": (["run", folder, "--format", "xml"], "Unknown format 'xml'. Choices: csv, jsonl, text."),
        "no GPU to run on": (
            ["run", folder, "--prompt", "3", "--device", "cuda"],
            "device=cuda, but torch finds no GPU here. Use device=cpu.",
        ),
        "a seed": (
            ["run", folder, "--prompt", "3", "--seed", "-1"],
            "seed -1 is not a whole number from 0 up. ",
        ),
    }


def _file(path: Path, content: bytes) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("kind", [data, configs, folders, models, runs])
def test_a_mistake_is_reported_and_leaves_nothing(
    kind: Callable[[Path, Path, Path], Mistakes], book: Path, folder: Path, tmp_path: Path
) -> None:
    for name, (words, message) in kind(book, folder, tmp_path).items():
        code, out, err = call(*words)
        assert code == 2, (name, err)
        assert out == "", name
        assert err.startswith(f"unrolled: {message}"), (name, err)
        assert err == f"unrolled: {message}\n" or message.endswith((": ", ". ")), (name, err)
        assert not (tmp_path / "never").exists(), name
