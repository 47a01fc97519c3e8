"""The places in a text where a unit is most active."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.see.models import KINDS, RECURRENT, WITHOUT_STATES, input_of
from unrolled.errors import UserError
from unrolled.model import Model

Find = Callable[[str], Model]
TEXT = "3 and 4 make 7\n5 and 6 make 11\n" * 4


def test_they_are_the_largest_and_smallest_and_apart(model_of: Find) -> None:
    trace = model_of("generate-lstm").trace(TEXT)
    column = trace.values("l1", "f")[:, 7]
    found = trace.places(7, "l1", "f", count=6)
    assert found.most[0].step == int(column.argmax())
    assert found.least[0].step == int(column.argmin())
    for places, sign in ((found.most, 1), (found.least, -1)):
        steps = [place.step for place in places]
        assert len(steps) == 6
        assert [place.value for place in places] == pytest.approx(column[steps].tolist())
        assert sorted(steps, key=lambda t: -sign * float(column[t])) == steps
        near = {t for step in steps for t in range(step - 5, step + 6)}
        assert all(sign * column[t] <= sign * column[steps[-1]] for t in range(len(column)) if t not in near)
        assert all(abs(a - b) > 5 for i, a in enumerate(steps) for b in steps[:i])
    place = found.most[2]
    read = "".join(trace.tokens).replace(" ", "␣").replace("\n", "↵")
    assert f"{place.before}{place.token}{place.after}" in read
    assert read[place.step] == place.token


def test_they_are_printed_under_each_other(model_of: Find) -> None:
    said = str(model_of("generate-gru").trace("3 and 4").places(2, count=1)).splitlines()
    assert said[0] == "layer l0, h of unit 2, 7 steps"
    assert said[2] == "most"
    assert said[6] == "least"
    assert said[4].count("«") == said[8].count("«") == 1
    for place in model_of("tag-crf").trace("Ada met Grace Hopper .").places(0).most:
        assert f"{place.before}«{place.token}»{place.after}".replace("«", "").replace("»", "") == (
            "Ada met Grace Hopper ."
        )


@pytest.mark.parametrize("kind", RECURRENT)
def test_every_recurrent_model_has_them(kind: str, model_of: Find) -> None:
    trace = model_of(kind).trace(input_of(kind))
    assert trace.places(0).most[0].step == int(trace.values(trace.layers[0], "h")[:, 0].argmax())


@pytest.mark.parametrize("kind", WITHOUT_STATES)
def test_a_model_without_states_says_so(kind: str, model_of: Find) -> None:
    trace = model_of(kind).trace(input_of(kind))
    for ask in (lambda: trace.places(0), lambda: trace.by_hand(0, 0)):
        with pytest.raises(UserError, match=r"has no (recurrent )?states and no gates"):
            ask()


def test_mistakes(model_of: Find) -> None:
    trace = model_of("generate-rnn").trace(KINDS["generate-rnn"][3])
    for options, message in (
        ({"unit": 99}, "There is no unit 99. Expected 0 to 11."),
        ({"unit": 0, "quantity": "q"}, "Unknown gate or state 'q'. Choices: h."),
        ({"unit": 0, "layer": "l5"}, "Unknown layer 'l5'. Choices: l0."),
    ):
        with pytest.raises(UserError) as error:
            trace.places(**options)
        assert str(error.value) == message
