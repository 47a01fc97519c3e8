"""Search spaces and plans: what is tried, in which order, and every mistake in one message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unrolled import UserError, choice, integer, log, uniform
from unrolled.config import read_toml
from unrolled.jobs import find_target
from unrolled.sweeps.plan import SweepPlan, differences, make_plan
from unrolled.sweeps.settings import SweepSettings, seconds_of
from unrolled.sweeps.spaces import Alternatives, NumberRange, parse_space


def plan_of(*overrides: str, target: str | Path = "classify", **extra: Any) -> SweepPlan:
    changes = {name.replace("__", "."): value for name, value in extra.items()}
    return make_plan(find_target(target), list(overrides), changes)[0]


@pytest.mark.parametrize(
    ("text", "space"),
    [
        ("log(1e-4, 1e-2)", log(1e-4, 1e-2)),
        ("uniform(0,0.5)", uniform(0, 0.5)),
        ("uniform(0, 1, step=0.25)", uniform(0, 1, step=0.25)),
        ("int(1, 4)", integer(1, 4)),
        ("int(16, 64, step=16)", integer(16, 64, step=16)),
        ("int(16, 512, log)", integer(16, 512, log=True)),
        ("logint(16, 512)", integer(16, 512, log=True)),
        ("choice(lstm, gru)", choice("lstm", "gru")),
        ("choice('a, b', [1, 2])", choice("'a, b'", "[1, 2]")),
    ],
)
def test_a_text_and_a_function_give_the_same_space(text: str, space: NumberRange | Alternatives) -> None:
    assert parse_space(text, str) == space
    assert parse_space(str(space), str) == space or "'" in text


def test_the_type_of_a_key_decides_the_type_of_its_values() -> None:
    plan = plan_of("model.hidden_size=log(8, 32)", "train.lr=int(1, 3)", "model.cell=choice(lstm,gru)")
    assert str(plan.spaces["model.hidden_size"]) == "logint(8, 32)"
    assert plan.spaces["train.lr"].ends == (1, 3)
    assert plan.config({"model.hidden_size": 8, "train.lr": 1, "model.cell": "gru"}).model.hidden_size == 8


def test_all_mistakes_are_in_one_message() -> None:
    with pytest.raises(UserError) as caught:
        plan_of(
            *["train.lrr=log(1e-4, 1e-2)", "model.cell=choice(lstm, gruu)", "train.batch_size=-1"],
            *["train.lr=log(0, 1)", "model.hidden_size=int(0, 8)", "train.hold=uniform(1, 0)"],
            *["model.dropout=uniform(0, 0.5, steps=3)", "train.seed=choice(1)", "train.decay_to=log(a, 1)"],
            *["model.num_layers=uniform(1, 2.5)", "train.schedule=uniform(1, 2)", "train.warmup_steps=int(1)"],
        )
    forms = (
        "Forms: log(1e-4, 1e-2), uniform(0, 0.5), int(1, 4), logint(16, 512), choice(lstm, gru); ranges of whole "
        "numbers and uniform also take step=8."
    )
    assert str(caught.value).split("\n  ") == [
        "The config has 12 mistakes:",
        "--set: train.batch_size=-1 is out of range. Expected a whole number, 1 or more.",
        "--set: Unknown key 'train.lrr'. Did you mean 'train.lr'?",
        "--set: model.cell=choice(lstm, gruu): Unknown model.cell 'gruu'. Did you mean 'gru'? Choices: gru, lstm, rnn.",
        "--set: train.lr=log(0, 1): a logarithmic range cannot begin at 0. Begin it above 0.",
        "--set: model.hidden_size=int(0, 8): model.hidden_size=0 is out of range. Expected a whole number, 1 or more.",
        "--set: train.hold=uniform(1, 0): the range is empty: 1 is not below 0. Swap them.",
        f"--set: model.dropout=uniform(0, 0.5, steps=3): 'steps=3' has no meaning here. {forms}",
        "--set: train.seed=choice(1): a choice is between different values, two or more. Such as choice(1, 2).",
        f"--set: train.decay_to=log(a, 1): 'a' is not a number. {forms}",
        "--set: model.num_layers=uniform(1, 2.5): its values are whole numbers, and a bound is not. Give whole "
        "numbers.",
        '--set: train.schedule=uniform(1, 2): it takes one of "constant", "cosine", "geometric", "plateau", not a '
        "range of numbers. Write choice(constant, cosine, geometric, plateau).",
        f"--set: train.warmup_steps=int(1): int takes two numbers. {forms}",
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["train.lr=0.1"], "Nothing varies: no key has a search space. Such as --set 'train.lr=log(1e-4, 1e-2)'."),
        (
            ["train.momentum=uniform(0, 0.9)"],
            "train.momentum=uniform(0, 0.9) does nothing here: it belongs to train.optimizer=sgd or rmsprop, and "
            "train.optimizer is adamw. Leave it out.",
        ),
        (
            ["model.cell=choice(gru, rnn)", "model.peephole=current"],
            "model.peephole='current' does nothing here: it belongs to model.cell=lstm, and model.cell is gru. "
            "Leave it out.",
        ),
        (["train.lr=log(1, 2)", "train.lr=log(nan, 2)"], "train.lr=log(nan, 2): a bound is not a finite number."),
        (["train.lr=uniform(0.1, 0.2, step=1)"], "the step 1 does not fit into the range. Use a smaller one."),
    ],
)
def test_a_plan_that_cannot_work_says_why(given: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        plan_of(*given)
    assert message in str(caught.value)


def test_a_key_is_drawn_only_where_it_does_something() -> None:
    """The key that decides comes first, whatever the order of the command."""
    plan = plan_of("model.peephole=choice(none, current)", "model.cell=choice(lstm, gru)", "train.optimizer=adam")
    assert list(plan.spaces) == ["model.cell", "model.peephole"]
    assert plan.combinations(10) == [
        {"model.cell": "lstm", "model.peephole": "none"},
        {"model.cell": "lstm", "model.peephole": "current"},
        {"model.cell": "gru"},
    ]
    assert plan.combinations(2) is None


def test_a_fixed_key_that_does_nothing_in_a_trial_has_its_default_there() -> None:
    plan = plan_of("model.peephole=current", "model.cell=choice(lstm, gru)")
    assert plan.config({"model.cell": "lstm"}).model.peephole == "current"
    assert plan.config({"model.cell": "gru"}).model.peephole == "none"


def test_combinations_are_all_and_each_once() -> None:
    plan = plan_of(
        "model.num_layers=int(1, 3)", "model.cell=choice(lstm, gru)", "train.hold=uniform(0, 0.5, step=0.25)"
    )
    found = plan.combinations(100)
    assert found is not None
    assert len(found) == len({tuple(one.values()) for one in found}) == 3 * 2 * 3
    assert plan_of("train.lr=log(1, 2)").combinations(100) is None


def test_a_table_in_the_config_file_gives_spaces_and_settings(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        'task = "classify"\n[train]\nseed = 3\n[sweep]\ntrials = 7\npruner = "none"\n"model.cell" = ["lstm", "gru"]\n'
        'train.lr = "log(1e-3, 1e-1)"\nmodel.num_layers = "int(1, 2)"\n'
    )
    plan, settings = make_plan(find_target(path), ["model.num_layers=2", "train.lr=log(1, 2)"], {})
    assert settings == {"trials": 7, "pruner": "none"}
    assert {path: str(space) for path, space in plan.spaces.items()} == {
        "model.cell": "choice(lstm, gru)",
        "train.lr": "log(1, 2)",
    }
    assert (plan.base.model.num_layers, plan.base.train.seed) == (2, 3)
    config: Any = find_target(path).configure()
    assert config.train.seed == 3  # `unrolled train` passes over the table
    path.write_text('task = "classify"\n[sweep]\ntrails = 7\n')
    with pytest.raises(UserError, match=r"\[sweep\]: Unknown key 'trails'\. .* Settings of a sweep: trials, time, "):
        make_plan(find_target(path), [], {})


def test_the_file_of_a_sweep_gives_its_plan_back(tmp_path: Path) -> None:
    plan = plan_of("train.lr=log(1e-3, 1e-1)", "model.cell=choice(lstm,gru)", "train.clip_norm=choice(none, 0.5)")
    path = tmp_path / "sweep.toml"
    path.write_text(plan.as_toml(SweepSettings(seed=4), "A sweep."))
    again, settings = make_plan(find_target(path), [], {})
    assert (again.base, dict(again.spaces)) == (plan.base, dict(plan.spaces))
    assert settings["seed"] == 4
    assert differences(read_toml(path).data, again.as_toml(SweepSettings(seed=4), "")) == []
    other = plan_of("train.lr=log(1e-3, 1)", "model.cell=choice(lstm,gru)", "train.clip_norm=choice(none, 0.5)")
    assert differences(read_toml(path).data, other.as_toml(SweepSettings(seed=4), "")) == [
        "train.lr: 'log(0.001, 0.1)', now 'log(0.001, 1)'"
    ]


def test_times() -> None:
    assert [seconds_of(text) for text in ("90s", "1.5m", "2h", "1h30m", "1 h", 7)] == [90, 90, 7200, 5400, 3600, 7]
    for text in ("2", "soon", "0s", "-1h", "1d"):
        with pytest.raises(UserError, match=r"is not a time\. Write it as 90s, 30m, 2h or 1h30m\."):
            seconds_of(text)
