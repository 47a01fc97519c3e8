"""`unrolled doctor`: versions, devices and engines of this machine, and how training uses them."""

from __future__ import annotations

import json
import platform
from typing import Annotated, Any

import typer


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    need: Annotated[str | None, typer.Option(metavar="ENGINE", help="Fail if this engine is missing.")] = None,
) -> None:
    """Show versions, threads, devices and engines, and the precision and updates of training by default."""
    facts = examine()
    if need is not None:
        from unrolled.kernels import check_engine

        check_engine(need)
    if as_json:
        typer.echo(json.dumps(facts))
        return
    engines = facts.pop("engines")
    width = max(map(len, [*facts, *engines]))
    for name, value in facts.items():
        typer.echo(f"{name:<{width}}  {value}")
    typer.echo("\nEngines, in the order they are tried:")
    for name, description in engines.items():
        typer.echo(f"{name:<{width}}  {description}")


def examine() -> dict[str, Any]:
    """Facts about this machine, by name."""
    import torch

    from unrolled import __version__
    from unrolled.kernels import ENGINES, NOT_BUILT
    from unrolled.training.devices import pick_device
    from unrolled.training.graphs import about_graphs
    from unrolled.training.precision import about_precision

    device = pick_device("auto")
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {
        "unrolled": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "instruction set": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "native": f"not built: {NOT_BUILT['native']}" if "native" in NOT_BUILT else ENGINES["native"].about(),
        "gpu": gpu,
        "precision": about_precision(device),
        "updates": about_graphs(device),
        "engines": {name: engine.DESCRIPTION for name, engine in ENGINES.items()},
    }
