"""A run can be made longer, and little else of it changed, when it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch

from tests.faults.test_resume import SETTINGS, TEXT, Killed
from unrolled import UserError, api
from unrolled.training.run import Run

KEYS: dict[str, Any] = {
    **SETTINGS,
    "train.schedule": "constant",
    "train.teacher_forcing": "always",
    "train.max_steps": 8,
    "train.eval_every": 4,
}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "sums.txt"
    path.write_text(TEXT)
    return path


def train(text: Path, folder: Path, **changes: Any) -> None:
    keys = {**KEYS, **{key.replace("__", "."): value for key, value in changes.items()}}
    api.train("generate", train=text, out=folder, set=keys, quiet=True)


def assert_same_weights(one: Path, other: Path) -> None:
    assert safetensors.torch.load(one.read_bytes()).keys() == safetensors.torch.load(other.read_bytes()).keys()
    for name, value in safetensors.torch.load(one.read_bytes()).items():
        assert value.equal(safetensors.torch.load(other.read_bytes())[name]), name


@pytest.mark.parametrize("schedule", ["constant", "plateau"])
def test_made_longer_it_ends_as_one_that_was_as_long_from_the_start(text: Path, tmp_path: Path, schedule: str) -> None:
    train(text, tmp_path / "long", train__max_steps=16, train__schedule=schedule)
    train(text, tmp_path / "run", train__schedule=schedule)
    api.resume(tmp_path / "run", set={"train.max_steps": 16}, quiet=True)
    for name in ("metrics.jsonl", "updates.csv", "samples.jsonl"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "long" / name).read_bytes(), name
    for name in ("best.safetensors", "last.safetensors"):
        assert_same_weights(tmp_path / "run" / name, tmp_path / "long" / name)
    changed, made = ((tmp_path / name / "config.toml").read_text() for name in ("run", "long"))
    assert changed == f"# Changed at step 8: train.max_steps was 8, now 16.\n\n{made}"
    assert api.configure(tmp_path / "run" / "config.toml") == api.configure(tmp_path / "long" / "config.toml")


def test_changes_are_told_one_after_the_other(text: Path, tmp_path: Path) -> None:
    train(text, tmp_path)
    api.resume(tmp_path, set=["train.max_steps=12"], quiet=True)
    api.resume(tmp_path, set={"train.max_steps": 14, "train.lr": 0.001}, quiet=True)
    lines = (tmp_path / "config.toml").read_text().splitlines()[:3]
    assert lines[0] == "# Changed at step 8: train.max_steps was 8, now 12."
    assert "train.lr was 0.004, now 0.001" in lines[1]
    assert lines[2] == ""
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [4, 8, 12, 14]
    assert [row["lr"] for row in rows] == pytest.approx([0.0008, 0.0016, 0.0024, 0.0007])  # while it warms up


def test_a_falling_schedule_follows_the_new_end_and_says_so(text: Path, tmp_path: Path, capfd: Any) -> None:
    train(text, tmp_path, train__schedule="cosine", train__warmup_steps=0, train__lr=0.01)
    api.resume(tmp_path, set={"train.max_steps": 16})
    said = capfd.readouterr().err
    assert "train.max_steps was 8, now 16\n" in said
    assert "The run now ends after 16 updates instead of 8; 8 are done.\n" in said
    assert (
        "The learning rate follows the cosine schedule of 16 updates from here: it was 4.77e-04, is 5.05e-03 now, "
        "and ends at 1.95e-04.\n"
    ) in said
    rates = [float(line.split(",")[2]) for line in (tmp_path / "updates.csv").read_text().splitlines()[1:]]
    assert rates[8] == pytest.approx(0.00505)
    assert rates[8:] == sorted(rates[8:], reverse=True)


def test_killed_after_the_change_it_goes_on_with_it(text: Path, tmp_path: Path) -> None:
    """The config is changed before the first of the new updates."""
    train(text, tmp_path / "long", train__max_steps=16)
    train(text, tmp_path / "run")

    def die(run: Run, info: Any, scores: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "_evaluated", die)
        with pytest.raises(Killed):
            api.resume(tmp_path / "run", set={"train.max_steps": 16}, quiet=True)
    api.resume(tmp_path / "run", quiet=True)
    assert_same_weights(tmp_path / "run" / "last.safetensors", tmp_path / "long" / "last.safetensors")


def test_fixed_keys_cannot_change_and_the_config_stays(text: Path, tmp_path: Path) -> None:
    train(text, tmp_path)
    before = (tmp_path / "config.toml").read_text()
    for keys, said in {
        ("train.batch_size", 8): (
            f"train.batch_size cannot change when a run resumes: {tmp_path} has 4. Leave it out. These can change: "
            "train.epochs, train.max_steps, train.patience, train.eval_every, train.lr, train.clip_norm, "
            "train.clip_value, train.device, train.threads, train.backend, train.timeout, train.log and the paths of "
            "the same data. "
            f"Or start a new run from this one's model: unrolled train generate --init {tmp_path} "
            "--set train.batch_size=8"
        ),
        (
            "train.max_steps",
            8.5,
        ): "train.max_steps=8.5 is a decimal number. Expected a whole number, 1 or more, or none.",
        ("train.max_stepz", 9): "Unknown key 'train.max_stepz'. Did you mean 'train.max_steps'?",
        ("train.max_steps", 5): (
            "The run has made 8 updates and cannot end after 5. "
            "Ask for more than 8, with train.epochs or train.max_steps."
        ),
    }.items():
        with pytest.raises(UserError) as error:
            api.resume(tmp_path, set=dict([keys]), quiet=True)
        assert str(error.value) == said
        assert (tmp_path / "config.toml").read_text() == before


def test_an_end_that_another_key_holds_is_said(text: Path, tmp_path: Path, capfd: Any) -> None:
    train(text, tmp_path, train__epochs=1, train__max_steps=5)
    total = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert total == 5
    api.resume(tmp_path, set={"train.epochs": 50})
    assert (
        "It still ends after 5 updates: train.epochs and train.max_steps are both set, and the earlier end counts.\n"
        in (capfd.readouterr().err)
    )


def test_a_finished_run_says_how_to_make_it_longer(text: Path, tmp_path: Path, capfd: Any) -> None:
    train(text, tmp_path)
    api.resume(tmp_path)
    longer = f"To make it longer: unrolled train --resume {tmp_path} --set train.max_steps=16\n"
    assert f"The run is already finished. {longer}" in capfd.readouterr().err


def test_stopped_early_it_goes_on_with_more_patience(text: Path, tmp_path: Path, capfd: Any) -> None:
    keys = {"train__lr": 1e-12, "train__eval_every": 1, "train__max_steps": 12, "train__teacher_forcing": "always"}
    train(text, tmp_path / "long", **keys, train__patience=0)
    train(text, tmp_path / "run", **keys, train__patience=2)
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert len(rows) < 12
    capfd.readouterr()
    api.resume(tmp_path / "run")
    said = capfd.readouterr().err
    found = [json.loads(row)["nats_per_token"] for row in rows]
    better = 1 + found.index(min(found))
    assert (
        f"Stopped early: no better nats_per_token than at step {better} in the last 2 evaluations (train.patience). "
        f"To train on: unrolled train --resume {tmp_path / 'run'} --set train.patience=0\n"
    ) in said
    assert "already finished" not in said
    api.resume(tmp_path / "run", set={"train.patience": 0}, quiet=True)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (tmp_path / "long" / "metrics.jsonl").read_bytes()


STALLS = {"train__lr": 1e-12, "train__eval_every": 1, "train__max_steps": 12, "train__patience": 2}


@pytest.mark.parametrize("key", ["train.max_steps", "train.epochs"])
def test_stopped_early_it_trains_on_when_the_end_is_moved(text: Path, tmp_path: Path, capfd: Any, key: str) -> None:
    end = {"train__max_steps": None, "train__epochs": 3} if key == "train.epochs" else {}
    train(text, tmp_path, **{**STALLS, **end})
    rows = (tmp_path / "metrics.jsonl").read_text()
    made = json.loads(rows.splitlines()[-1])["step"]
    capfd.readouterr()
    api.resume(tmp_path, set={key: 20, "train.lr": 0.01})
    assert "It had stopped early (train.patience): it continues, and its patience is reset.\n" in (
        capfd.readouterr().err
    )
    longer = (tmp_path / "metrics.jsonl").read_text()
    assert longer.startswith(rows)
    assert json.loads(longer.splitlines()[-1])["step"] >= made + 2


def test_it_trains_on_where_patience_ended_with_the_last_update(text: Path, tmp_path: Path) -> None:
    train(text, tmp_path / "one", **STALLS)
    made = len((tmp_path / "one" / "metrics.jsonl").read_text().splitlines())
    train(text, tmp_path / "run", **{**STALLS, "train__max_steps": made})
    api.resume(tmp_path / "run", set={"train.max_steps": made + 3}, quiet=True)
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) >= made + 2


def test_stopped_early_moved_and_killed_it_still_trains_on(text: Path, tmp_path: Path) -> None:
    train(text, tmp_path, **STALLS)
    made = len((tmp_path / "metrics.jsonl").read_text().splitlines())

    def die(run: Run, info: Any, scores: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "_evaluated", die)
        with pytest.raises(Killed):
            api.resume(tmp_path, set={"train.max_steps": 20}, quiet=True)
    api.resume(tmp_path, quiet=True)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) >= made + 2


def test_a_warm_up_longer_than_the_run_is_said(text: Path, tmp_path: Path, capfd: Any) -> None:
    said = (
        "train.warmup_steps=20 is more than the run's 8 updates: the learning rate rises to 0.0016 at the last of them "
        "and never reaches train.lr=0.004. Use fewer, such as train.warmup_steps=0."
    )
    keys = [f"{key}={'none' if value is None else value}" for key, value in KEYS.items()]
    assert api.check("generate", keys, {"data.train": str(text)}).facts["learning rate"] == said
    api.train("generate", train=text, out=tmp_path / "run", set=KEYS)
    assert f"\nNote: {said}\n" in capfd.readouterr().err
    api.resume(tmp_path / "run", set={"train.max_steps": 20})
    assert "train.warmup_steps=20 is more" not in capfd.readouterr().err
