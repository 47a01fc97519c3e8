"""The command, the pictures and the page of a sweep."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.browser import launched, new_page
from tests.cli.test_generate import call
from tests.sweeps.tiny import words, write_words
from unrolled.jobs import find_target
from unrolled.sweeps.figures import TrialsFigures
from unrolled.sweeps.page import page_of
from unrolled.sweeps.plan import make_plan
from unrolled.sweeps.progress import SweepProgress
from unrolled.sweeps.rows import TrialRow, as_csv, best_of
from unrolled.sweeps.settings import SweepSettings
from unrolled.sweeps.trials import Trials
from unrolled.training import Goal

GOAL = Goal("accuracy", higher_is_better=True)
KEYS = ["train.lr", "model.cell", "model.peephole"]
ROWS = [
    TrialRow(0, "complete", 0.7, 2.0, 40, 4, {"train.lr": 0.01, "model.cell": "gru"}, [(20, 0.5), (40, 0.7)]),
    TrialRow(1, "failed", None, 1.0, 3, 1, {"train.lr": 0.9, "model.cell": "gru"}, reason="Training <b>failed"),
    TrialRow(
        2, "complete", 0.9, 2.5, 40, 4, {"train.lr": 0.1, "model.cell": "lstm", "model.peephole": "none"},
        [(20, 0.6), (40, 0.9)],
    ),
    TrialRow(3, "pruned", 0.4, 1.0, 20, 2, {"train.lr": 0.001, "model.cell": "gru"}, [(20, 0.4)]),
    TrialRow(4, "stopped", None, 1.0, 20, 2, {"train.lr": 0.02, "model.cell": "gru"}, reason="the time was up", then=5),
    TrialRow(5, "waiting", params={"train.lr": 0.02, "model.cell": "gru"}),
]  # fmt: skip
FIGURES = TrialsFigures(ROWS, KEYS, ["train.lr"], "accuracy", True, {"train.lr": 0.75, "model.cell": 0.25})


def test_the_table_holds_every_trial() -> None:
    lines = as_csv(ROWS, KEYS).splitlines()
    assert lines[0] == "number,state,score,seconds,steps,epochs,train.lr,model.cell,model.peephole,note"
    assert lines[3] == "2,complete,0.9,2.5,40,4,0.1,lstm,none,"
    assert lines[5] == "4,stopped,,1.0,20,2,0.02,gru,,the time was up; goes on as 5"
    best = best_of(ROWS, higher_is_better=True)
    assert best is not None
    assert best.number == 2


def test_a_loss_is_minimised(tmp_path: Path) -> None:
    plan, _ = make_plan(find_target("generate"), ["train.lr=log(1e-3, 1)", "train.batch_size=choice(8, 16)"], {})
    study = Trials(tmp_path, plan, SweepSettings(), Goal("nats_per_token")).study
    assert study.direction.name == "MINIMIZE"
    best = best_of(ROWS, higher_is_better=False)
    assert best is not None
    assert best.number == 0


def test_the_pictures_show_what_is_there() -> None:
    history = FIGURES._history()
    above, below = history.axes
    assert above.get_ylabel() == "validation accuracy (higher is better)"
    lines = {line.get_label(): line.get_xydata().tolist() for line in above.get_lines()}  # type: ignore[union-attr]
    assert lines["complete"] == [[0, 0.7], [2, 0.9]]
    assert lines["best so far"] == [[0, 0.7], [2, 0.9]]
    assert lines["pruned, its last score"] == [[3, 0.4]]
    assert lines["failed"][0][0] == 1
    curves = {line.get_label(): line.get_xydata().tolist() for line in below.get_lines()}  # type: ignore[union-attr]
    assert curves["best, trial 2"] == [[20, 0.6], [40, 0.9]]
    parallel = FIGURES._parallel()
    texts = {text.get_text() for text in parallel.axes[0].texts}
    assert {"lstm", "gru", "none", "not used", "0.001", "0.01", "0.1"} <= texts
    assert [label.get_text() for label in parallel.axes[0].get_xticklabels()] == [*KEYS, "accuracy"]
    bars = FIGURES._importance().axes[0]
    assert [text.get_text() for text in bars.texts] == ["25 %", "75 %"]


def test_the_page_sorts_its_table(tmp_path: Path) -> None:
    spaces = ["train.lr=log(1e-3, 1)", "model.cell=choice(lstm, gru)", "model.peephole=choice(none, current)"]
    plan, _ = make_plan(find_target("classify"), spaces, {})
    path = tmp_path / "sweep.html"
    path.write_text(page_of(tmp_path, plan, GOAL, FIGURES, FIGURES.pictures()))
    with launched() as browser, new_page(browser) as page:
        page.goto(path.as_uri())
        assert page.locator("#trials tbody tr").count() == len(ROWS)
        assert page.locator("#trials tr.best td").first.inner_text() == "2"
        assert "<b>failed" in page.locator("#trials tr.failed td.note").inner_text()
        page.get_by_role("button", name="accuracy").click()
        numbers = page.locator("#trials tbody tr td:first-child").all_inner_texts()
        assert numbers == ["2", "0", "3", "1", "4", "5"]
        assert page.locator("#parallel svg").count() > 0
        assert "Best accuracy 0.9, trial 2" in page.locator("#summary").inner_text()


def test_a_line_for_each_trial(capsys: pytest.CaptureFixture[str]) -> None:
    progress = SweepProgress(GOAL, limit=4, deadline=None)
    progress.begin(ROWS[:1])
    progress.show(ROWS)
    head, names, *lines = capsys.readouterr().err.splitlines()
    assert head == "1 trials have ended already; the sweep goes on."
    assert names.split() == ["trial", "state", "accuracy", "best", "so", "far", "left"]
    found = [re.split(r"\s{2,}", line.strip()) for line in lines]
    assert [row[:2] for row in found] == [["1", "failed"], ["2", "complete"], ["3", "pruned"], ["4", "stopped"]]
    assert found[1][2:4] == ["0.9000", "0.9000 (trial 2)"]
    assert found[0][-1] == "Training <b>failed"
    assert found[1][-1] == "train.lr=0.1 model.cell=lstm model.peephole=none"


def test_mistakes_on_the_command_line_leave_nothing_behind(tmp_path: Path) -> None:
    data, out = write_words(tmp_path / "words.tsv"), tmp_path / "sweep"
    for more, message in (
        (["--time", "soon"], "time='soon' is not a time. Write it as 90s, 30m, 2h or 1h30m."),
        (["--pruner", "medium"], "Unknown pruner 'medium'. Did you mean 'median'? Choices: hyperband, median, none."),
        (
            ["--set", "train.lr=log(1, 0)"],
            "--set: train.lr=log(1, 0): the range is empty: 1 is not below 0. Swap them.",
        ),
        (["--set", "model.cell=gru", "--set", "train.lr=0.1"], "Nothing varies: no key has a search space. Such as"),
    ):
        code, _, errors = call(*words(data, out, *more))
        assert (code, errors.startswith(f"unrolled: {message}")) == (2, True), errors
        assert not out.exists()


def test_a_task_that_other_processes_cannot_name_is_refused(tmp_path: Path) -> None:
    import unrolled
    from unrolled.tasks import Classify

    class Mine(Classify):
        pass

    with pytest.raises(unrolled.UserError, match=r"Several processes cannot share this task\. Name it as FILE\.py:"):
        unrolled.sweep(Mine(), set={"train.lr": "log(1, 2)"}, workers=2, out=tmp_path / "sweep")


def test_a_sweep_under_torchrun_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import unrolled

    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(unrolled.UserError, match=r"A sweep starts its own processes\. Start it without torchrun"):
        unrolled.sweep("classify", set={"train.lr": "log(1, 2)"}, out=tmp_path / "sweep")
