"""`unrolled doctor`: versions, devices and engines of this machine, and how training uses them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from unrolled.cli.ranks import is_first
from unrolled.errors import UserError

NOT = "not built"


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    need: Annotated[str | None, typer.Option(metavar="ENGINE", help="Fail if this engine is missing.")] = None,
) -> None:
    """Show versions, threads, devices and engines, and the precision and updates of training by default.

    Under torchrun also the processes, and the time that they need for a sum.
    """
    facts = examine()
    if need is not None:
        check(need, facts)
    if not is_first():
        return
    if as_json:
        typer.echo(json.dumps(facts))
        return
    engines = facts.pop("engines")
    width = max(map(len, [*facts, *engines]))
    for name, value in facts.items():
        typer.echo(f"{name:<{width}}  {value}")
    if engines:
        typer.echo("\nEngines, in the order they are tried:")
    for name, description in engines.items():
        typer.echo(f"{name:<{width}}  {description}")


def check(engine: str, facts: Mapping[str, Any]) -> None:
    """An error if an engine is missing. Of a machine without torch the native one alone is known."""
    if facts["engines"] or engine != "native":
        from unrolled.kernels import check_engine

        check_engine(engine)
    elif facts["native"].startswith(NOT):
        raise UserError("The native engine is not built in this installation.", "Install a wheel, or a C++20 compiler.")


def examine() -> dict[str, Any]:
    """Facts about this machine, by name."""
    from unrolled import __version__

    facts = {"unrolled": __version__, "python": platform.python_version(), "platform": platform.platform()}
    facts |= {"onnxruntime": version_of("onnxruntime", "pip install 'unrolled[runtime]'")}
    if importlib.util.find_spec("torch") is None:
        return {**facts, **without_torch(), "engines": {}}
    return {**facts, **with_torch()}


def version_of(package: str, install: str) -> str:
    """The version of a package, or how to install it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return f"not installed ({install})"


def without_torch() -> dict[str, Any]:
    """The facts of an install that runs exported models alone."""
    from unrolled.kernels.native_module import NATIVE

    built = f"built; {NATIVE.isa()} kernels (of {', '.join(NATIVE.isas())})" if NATIVE is not None else NOT
    torch = "not installed (pip install torch); `unrolled run` and `unrolled eval` take exported models"
    return {"torch": torch, "native": built}


def with_torch() -> dict[str, Any]:
    """The facts of an install that trains."""
    import torch

    from unrolled.kernels import ENGINES, NOT_BUILT
    from unrolled.model import current_versions
    from unrolled.training.devices import pick_device
    from unrolled.training.graphs import about_graphs
    from unrolled.training.links import about_ranks
    from unrolled.training.precision import about_precision

    device = pick_device("auto")
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {
        "torch": torch.__version__,
        "instruction set": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "native": f"{NOT}: {NOT_BUILT['native']}" if "native" in NOT_BUILT else ENGINES["native"].about(),
        "gpu": gpu,
        "precision": about_precision(device),
        "updates": about_graphs(device),
        **about_ranks(device, current_versions()),
        "engines": {name: engine.DESCRIPTION for name, engine in ENGINES.items()},
    }
