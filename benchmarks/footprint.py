"""The costs of an installation: the size of each package that `pip install unrolled` brings, and of an import.

Usage: python benchmarks/footprint.py; the record goes to benchmarks/results/footprint.json.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from measure import machine, row, show, write

ROOT = Path(__file__).parents[1]
STORED = ROOT / "tests/compat/2026-11/classify.safetensors"
STEPS = {
    "python alone": "pass",
    "import unrolled": "import unrolled",
    "import torch": "import torch",
    "load a classifier and run it": f"import unrolled; unrolled.load({str(STORED)!r}).predict('fine')",
}


def required(name: str, found: dict[str, float]) -> None:
    """Adds the installed size of a package, and of those that it needs, in MB."""
    name = re.sub(r"[-_.]+", "-", name).lower()
    if name in found or "extra ==" in name:
        return
    try:
        package = distribution(name)
    except PackageNotFoundError:  # of another system or Python
        return
    files = [Path(str(file.locate())) for file in package.files or []]
    found[name] = sum(file.stat().st_size for file in files if file.is_file()) / 1e6
    for line in package.requires or []:
        requirement, _, marker = line.partition(";")
        if "extra" not in marker:
            required(re.split(r"[\s<>=!~\[(]", requirement.strip())[0], found)


def cost(code: str) -> tuple[float, float]:
    """Processor seconds and peak MB of a fresh Python that runs the code: the best of three."""
    watched = (
        "import os, re, sys; exec(sys.argv[1]); spent = os.times(); "
        "print(spent.user + spent.system, re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    runs = [
        subprocess.run([sys.executable, "-c", watched, code], check=True, capture_output=True, text=True) for _ in "123"
    ]
    seconds, peak = zip(*(map(float, run.stdout.split()[-2:]) for run in runs), strict=True)
    return min(seconds), min(peak) / 1e3


def main() -> None:
    sizes: dict[str, float] = {}
    required("unrolled", sizes)
    sizes["unrolled"] = sum(path.stat().st_size for path in package_files()) / 1e6  # an editable one lists other files
    rows = [
        row(f"installed, {name}", f"{size:.1f} MB") for name, size in sorted(sizes.items(), key=lambda one: -one[1])
    ]
    whole = sum(sizes.values())
    rows += [row("installed, in all", f"{whole:.0f} MB"), row("without torch", f"{whole - sizes['torch']:.0f} MB")]
    for name, code in STEPS.items():
        seconds, peak = cost(code)
        rows.append(row(f"{name}, on one core", f"{seconds:.2f} s", note=f"{peak:.0f} MB of memory"))
    show("Size and start", rows)
    write("footprint", machine(), rows, [])


def package_files() -> list[Path]:
    """The files of this package: Python, CUDA sources, the page, and the compiled extension."""
    import unrolled.kernels

    native = getattr(unrolled.kernels, "_native", None)
    source = [path for path in (ROOT / "unrolled").rglob("*") if path.is_file() and path.suffix not in (".pyc", ".so")]
    return source + ([Path(native.__file__)] if native else [])


if __name__ == "__main__":
    main()
