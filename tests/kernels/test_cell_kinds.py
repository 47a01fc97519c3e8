"""Cell kinds of the C++ core: an unknown number raises, and never runs as another cell."""

from __future__ import annotations

import pytest

from unrolled.kernels import ENGINES

pytestmark = pytest.mark.skipif("native" not in ENGINES, reason="the native engine is not built here")

UNKNOWN = pytest.mark.parametrize("kind", [-2, -1, 99])


def run(name: str, kind: int, direction: str) -> None:
    from unrolled.kernels import _native

    job = getattr(_native, name)()
    job.kind = kind
    getattr(job, direction)(1)


@UNKNOWN
@pytest.mark.parametrize("name", ["ScanJob", "AttentionJob"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_an_unknown_kind_raises(kind: int, name: str, direction: str) -> None:
    with pytest.raises(ValueError, match=rf"^Unknown cell kind {kind}\. _native\.CELLS lists the kinds\.$"):
        run(name, kind, direction)


@pytest.mark.parametrize("name", ["ScanJob", "AttentionJob"])
def test_a_job_without_a_kind_raises(name: str) -> None:
    from unrolled.kernels import _native

    with pytest.raises(ValueError, match=r"^Unknown cell kind -1\. "):
        getattr(_native, name)().forward(1)


@UNKNOWN
def test_a_stepper_refuses_an_unknown_kind(kind: int) -> None:
    from unrolled.kernels import _native

    with pytest.raises(ValueError, match=rf"^Unknown cell kind {kind}\. _native\.CELLS lists the kinds\.$"):
        _native.Stepper(0).add_layer(kind, 3, 4, 4, False, 0.0, 0.0, {})


def test_a_stepper_refuses_unknown_weights() -> None:
    from unrolled.kernels import _native

    with pytest.raises(ValueError, match=r"^Unknown weight kind 4\. Kinds are 0 to 3\.$"):
        _native.Stepper(4)
