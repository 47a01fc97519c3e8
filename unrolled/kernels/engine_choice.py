"""The choice of an engine for a job: the fastest that can run it, or the one named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

from unrolled.errors import UserError, unknown_name

NOT_BUILT: dict[str, str] = {}
"""Engines missing in this installation: name → reason."""
NO_COMPILER = "no C++ compiler was found when it was installed"


@dataclass(frozen=True)
class Choice:
    """The engine for a job, and why.

    >>> print(Choice("torch", "the fastest that computes this"))
    torch: the fastest that computes this
    """

    engine: str
    reason: str

    def __str__(self) -> str:
        return f"{self.engine}: {self.reason}"


def not_built(engine: str, reason: str = NO_COMPILER) -> UserError:
    """The error of an engine that this installation lacks."""
    return UserError(
        f"The engine {engine!r} is not built in this installation: {reason}.",
        "Install a C++20 compiler and reinstall unrolled, or use backend='auto'.",
    )


def known_engine(engines: Mapping[str, ModuleType], backend: str) -> str:
    """The name of one of `engines` or "auto"; anything else is an error."""
    if backend in NOT_BUILT:
        raise not_built(backend, NOT_BUILT[backend])
    if backend != "auto" and backend not in engines:
        raise unknown_name("engine", backend, ["auto", *engines])
    return backend


def choose_of(engines: Mapping[str, ModuleType], job: object, backend: str, *, traced: bool = False) -> Choice:
    """The first of `engines` that can run the job; raises if the named engine cannot."""
    if backend == "auto":
        passed: list[str] = []
        for name, engine in engines.items():
            if _elsewhere(engine, job):
                continue
            reason = _refusal(engine, job, traced) or _outdone(engine, job, traced)
            if reason is None:
                return Choice(name, "; ".join(passed) or "the fastest engine that computes this")
            passed.append(f"not {name}: {reason}")
    reason = _refusal(engines[known_engine(engines, backend)], job, traced)
    if reason is not None:
        raise UserError(
            f"The engine {backend!r} cannot do this: {reason}.",
            "Use backend='auto', which picks one that can, or backend='reference', which runs everything.",
        )
    return Choice(backend, "asked for by name")


def _elsewhere(engine: ModuleType, job: object) -> bool:
    """True if an engine is for another type of device than the job's, which is not reported."""
    return hasattr(engine, "DEVICE") and getattr(job, "x").device.type != engine.DEVICE  # noqa: B009


def _refusal(engine: ModuleType, job: object, traced: bool) -> str | None:
    if traced and not hasattr(engine, "run_traced"):
        return "it does not show its gates"
    reason: str | None = engine.refuses(job)
    return reason


def _outdone(engine: ModuleType, job: object, traced: bool) -> str | None:
    if traced or not hasattr(engine, "outdone"):
        return None
    reason: str | None = engine.outdone(job)
    return reason
