"""The command as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import unrolled
from tests import warm
from unrolled.cli import app as command
from unrolled.errors import UserError


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return warm.unrolled(*words)


def test_version() -> None:
    assert run("--version").stdout == f"unrolled {unrolled.__version__}\n"


def test_the_installed_command_is_the_module() -> None:
    script = Path(sys.executable).with_name("unrolled")
    assert subprocess.run([script, "--version"], capture_output=True, text=True).stdout == run("--version").stdout


def test_help_does_not_import_torch() -> None:
    """Keeps `unrolled --help` instant."""
    code = "import sys; from unrolled.cli import main\ntry: main()\nfinally: assert 'torch' not in sys.modules"
    result = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "doctor" in result.stdout


NO_COMPILER = """
import sys, torch, unrolled
from unrolled.training.optimizers import make_optimizer, stored_state
from unrolled.training.settings import TrainSettings

unrolled.load(sys.argv[1]).predict("fine")
for name in ("adam", "adamw", "rmsprop", "sgd"):
    layer = torch.nn.Linear(2, 1)
    optimizer = make_optimizer(layer, TrainSettings(optimizer=name))
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.load_state_dict(stored_state(optimizer))
sys.exit("torch._dynamo" in sys.modules)
"""


def test_running_and_training_a_model_do_not_import_torchs_compiler() -> None:
    """It takes as long as importing torch does."""
    stored = Path(__file__).parents[1] / "compat" / "2026-11" / "classify.safetensors"
    subprocess.run([sys.executable, "-c", NO_COMPILER, stored], check=True)


def test_doctor_names_every_engine() -> None:
    facts = json.loads(run("doctor", "--json").stdout)
    assert list(facts["engines"]) == list(unrolled.kernels.ENGINES)
    assert facts["torch"] == torch.__version__
    assert facts["threads"] >= 1
    if not torch.cuda.is_available():
        assert facts["precision"].startswith("fp32 by default: ")
        assert facts["updates"].startswith("without CUDA graphs: ")


def test_doctor_prints_a_table() -> None:
    result = CliRunner().invoke(command.app, ["doctor"])
    assert result.exit_code == 0
    assert "reference" in result.stdout


def test_doctor_fails_if_a_needed_engine_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CliRunner().invoke(command.app, ["doctor", "--need", "reference"]).exit_code == 0
    monkeypatch.setitem(unrolled.kernels.NOT_BUILT, "native", "no module named '_native'")
    with pytest.raises(UserError) as error:
        CliRunner().invoke(command.app, ["doctor", "--need", "native"], catch_exceptions=False)
    assert str(error.value) == (
        "The engine 'native' is not built in this installation: no module named '_native'. "
        "Install a C++20 compiler and reinstall unrolled, or use backend='auto'."
    )
    with pytest.raises(UserError, match=r"Unknown engine 'nativ'. Did you mean 'native'\?"):
        CliRunner().invoke(command.app, ["doctor", "--need", "nativ"], catch_exceptions=False)


def test_an_unknown_verb_is_refused() -> None:
    result = run("trian")
    assert result.returncode == 2
    assert "trian" in result.stderr


def test_a_users_mistake_is_one_message_and_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise UserError("The file is empty.", "Give one with text.")

    monkeypatch.setattr(command, "app", fails)
    with pytest.raises(SystemExit) as exit:
        command.main()
    assert exit.value.code == 2
    assert capsys.readouterr().err == "unrolled: The file is empty. Give one with text.\n"


def test_help_shows_no_type_for_flags_without_a_value() -> None:
    for name in ("run", "decode", "words", "inspect"):
        shown = CliRunner().invoke(command.app, [name, "--help"], env={"COLUMNS": "200"}).output
        assert "<bool>" not in shown
        assert "[[" not in shown
        if name == "run":
            assert "sum|max" in next(line for line in shown.splitlines() if "--merge" in line)
