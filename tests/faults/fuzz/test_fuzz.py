"""Some hundred damaged inputs; `make fuzz N=100000` tries more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.fuzz.harness import fuzz, input_for, tried
from tests.faults.fuzz.targets import Target, make_targets

NUMBERS = range(1, 5)
SEED = 20


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    return make_targets(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.filterwarnings("ignore")
def test_every_seed_is_answered(targets: dict[str, Target], tmp_path: Path) -> None:
    outcomes = list(fuzz(list(targets.values()), SEED, [0], tmp_path))
    assert [(o.target, o.fault) for o in outcomes if o.fault or o.refused] == []


@pytest.mark.filterwarnings("ignore")
def test_damaged_inputs_are_answered_or_refused(targets: dict[str, Target], tmp_path: Path) -> None:
    outcomes = list(fuzz(list(targets.values()), SEED, NUMBERS, tmp_path))
    assert len(outcomes) == len(targets) * len(NUMBERS) > 300
    assert [f"{o.target} {o.number}\n{o.fault}" for o in outcomes if o.fault] == []
    assert sum(o.refused for o in outcomes) > len(outcomes) / 4  # they are damaged enough to be noticed


def test_the_harness_sees_faults(tmp_path: Path) -> None:
    def fails(path: Path) -> object:
        return {b"1": 1}[path.read_bytes()]

    target = Target("one", "text", ".txt", b"1 2 3\n", fails)
    assert "KeyError" in tried(target, 1, b"x", tmp_path).fault
    assert input_for(target, SEED, 7) == input_for(target, SEED, 7)
    assert len({input_for(target, SEED, number) for number in range(50)}) > 30
