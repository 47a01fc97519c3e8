"""`unrolled inspect --figures` for a paper: how wide, and which."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_generate import call
from tests.see.test_figures import WIDTHS, pages

Runs = Callable[[str], Path]


def test_a_column_of_a_paper(run_of: Runs, tmp_path: Path) -> None:
    chosen = ("--figures", tmp_path, "--format", "pdf", "--width", "column", "--only", "gates, losses")
    code, said, noise = call("inspect", run_of("generate-gru"), "3 and 4", *chosen)
    assert (code, noise) == (0, "")
    assert said.split() == [str(tmp_path / "gates.pdf"), str(tmp_path / "losses.pdf")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gates.pdf", "losses.pdf"]
    for path in tmp_path.iterdir():
        assert pages(path.read_bytes())[0] == pytest.approx(237.6)


def test_of_several_models_those_that_have_it(run_of: Runs, tmp_path: Path) -> None:
    both = (run_of("generate-gru"), "3 and 4", "--with", run_of("generate-rnn"), "--figures", tmp_path)
    code, said, _ = call("inspect", *both, "--only", "gates", "--width", "4")
    assert code == 0
    assert said.split() == [str(tmp_path / "generate-gru" / "gates.png")]
    code, said, _ = call("inspect", *both, "--only", "gradients", "--width", "page", "--format", "pdf")
    assert code == 0
    assert pages((tmp_path / "gradients.pdf").read_bytes())[0] == pytest.approx(6.9 * 72)
    for name, message in (
        ("attention", "A recurrent language model has no attention. Choices: "),
        ("gate", "Unknown figure 'gate'. Did you mean 'gates'?"),
    ):
        code, _, said = call("inspect", *both, "--only", f"{name},gates" if name == "gate" else name)
        assert code == 2
        assert said.startswith(f"unrolled: {message}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--figures", "a", "--width", "wide"), f"width='wide' is not a width. {WIDTHS}"),
        (("--figures", "a", "--only", "gates"), "A vanilla RNN has no gates. Choices: losses, states, norms, "),
        (("--figures", "a", "--only", ","), "No figure is named. Choices: losses, states, "),
        (("--step", "0", "--width", "3"), "--width is about figures. Give --figures FOLDER."),
        (("--only", "gates"), "--only is about figures. Give --figures FOLDER."),
    ],
)
def test_mistakes(
    words: tuple[str, ...], message: str, run_of: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = run_of("generate-rnn").resolve()
    monkeypatch.chdir(tmp_path)
    code, _, said = call("inspect", model, "3", *words)
    assert code == 2
    assert said.startswith(f"unrolled: {message}")
    assert not (tmp_path / "a").exists()
