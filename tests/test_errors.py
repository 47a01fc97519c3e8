"""The wording every mistake shares."""

from __future__ import annotations

from unrolled.errors import UserError, unknown_name


def test_a_user_error_is_what_torch_raises() -> None:
    error = UserError("Wrong.", "Right it.")
    assert isinstance(error, ValueError)
    assert isinstance(error, RuntimeError)
    assert (error.problem, error.fix, str(error)) == ("Wrong.", "Right it.", "Wrong. Right it.")


def test_the_nearest_name_is_suggested_whatever_its_case() -> None:
    assert "Did you mean 'lstm'?" in str(unknown_name("cell", "LSTN", ["lstm", "gru"]))


def test_nothing_near_is_not_suggested() -> None:
    assert str(unknown_name("cell", "xyz", ["lstm", "gru"])) == "Unknown cell 'xyz'. Choices: gru, lstm."
