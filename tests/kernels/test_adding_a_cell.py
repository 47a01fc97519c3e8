"""The list in docs/native.md is all that it takes to add a cell: a patch of those files adds a minimal gated unit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import warm
from tests.kernels.compiled import made

ROOT = Path(__file__).parents[2]
PATCH = Path(__file__).with_name("adding_a_cell.patch")
COMPILER = shutil.which(os.environ.get("CXX", "c++"))
# one instruction set, without the parts of the core that have no cells
SOURCES = (
    "bind/apart",
    "bind/module",
    "bind/vocabulary",
    "cells/*",
    "ctc/*",
    "recurrence/*",
    "runtime/*",
    "step/*",
    "*/kernels",
)
STUBS = """
#include "bind/ctc.h"
#include "bind/lines.h"
#include "bind/ngram.h"
#include "bind/search.h"
void unrolled::bind_ctc(nanobind::module_&) {}
void unrolled::bind_lines(nanobind::module_&) {}
void unrolled::bind_ngram(nanobind::module_&) {}
void unrolled::bind_search(nanobind::module_&) {}
"""
# an editable install finds the modules of its own tree, wherever one stands
TESTS = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__name__.startswith("ScikitBuild")]
for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "unrolled")]:
    del sys.modules[name]
sys.path.insert(0, ".")
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def patched_files() -> list[str]:
    return re.findall(r"^\+\+\+ b/(.*)$", PATCH.read_text("utf-8"), re.MULTILINE)


def test_the_list_names_the_patched_files() -> None:
    section = (ROOT / "docs/native.md").read_text("utf-8").split("## Adding a cell")[1]
    listed = re.findall(r"^\d\. `([^`]+)`", section, re.MULTILINE)
    assert len(listed) <= 6
    assert sorted(name.replace("<cell>", "mgu") for name in listed) == sorted(patched_files())


def build(tree: Path) -> None:
    """Compile the tree's C++ core, unoptimised, and put it into its package."""
    nanobind = pytest.importorskip("nanobind")
    include = [nanobind.include_dir(), nanobind.source_dir(), f"{nanobind.source_dir()}/../ext/robin_map/include"]
    include += [sysconfig.get_path("include"), str(tree / "native")]
    options = ["-std=gnu++20", "-fPIC", "-w", "-Werror=switch", *(f"-I{folder}" for folder in include)]
    found = sorted({path for pattern in SOURCES for path in (tree / "native").glob(f"{pattern}.cpp")})
    kernels = [path for path in found if "UNROLLED_NAMESPACE" in path.read_text("utf-8")]
    # one file for all sources: the compiler reads their headers once
    texts = {"core": STUBS + included(path for path in found if path not in kernels)}
    texts["kernels"] = "#define UNROLLED_NAMESPACE plain\n" + included(kernels)
    archive = built_nanobind()
    if archive is None:
        texts["core"] += '#include "nb_combined.cpp"\n'

    def compiled(name: str) -> str:
        source, output = tree / "native" / f"all_{name}.cpp", str(tree / f"{name}.o")
        source.write_text(texts[name], "utf-8")
        run([str(COMPILER), *options, "-O0", "-c", str(source), "-o", output], tree)
        return output

    def link(output: Path) -> None:
        with ThreadPoolExecutor(2) as pool:
            objects = list(pool.map(compiled, texts))
        archives = [] if archive is None else [str(archive)]
        run([str(COMPILER), "-shared", "-pthread", *objects, *archives, "-ldl", "-o", str(output)], tree)

    sources = {str(path.relative_to(tree)): path.read_text("utf-8") for path in sorted(tree.glob("native/**/*.*"))}
    version = run([str(COMPILER), "--version"], tree)
    facts = (version, nanobind.__version__, sys.version, Path(__file__).read_text("utf-8"), sources)
    ending = str(sysconfig.get_config_var("EXT_SUFFIX"))
    shutil.copy(made(facts, ending, link), tree / f"unrolled/kernels/_native{ending}")


def built_nanobind() -> Path | None:
    """nanobind as the installation of this checkout compiled it; the patch has nothing to do with it."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    found = sorted(ROOT.glob(f"build/{tag}-{tag}-*/libnanobind-static.a"))
    return found[0] if found else None


def included(sources: Iterable[Path]) -> str:
    return "".join(f'#include "{path}"\n' for path in sources)


def run(command: list[str], folder: Path) -> str:
    path = {"PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=os.environ | path, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.skipif(COMPILER is None or shutil.which("git") is None, reason="needs a C++ compiler and git")
@pytest.mark.skipif(sys.platform != "linux", reason="links as Linux does")
def test_a_cell_added_by_the_list_equals_reference(tmp_path: Path) -> None:
    skipped = shutil.ignore_patterns("*.so", "__pycache__")
    for folder in ("native", "unrolled", "tests/kernels"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=skipped)
    for path in (ROOT / "pyproject.toml", *(ROOT / "tests").glob("*.py")):
        shutil.copy(path, tmp_path / path.relative_to(ROOT))
    run(["git", "apply", "-C1", str(PATCH)], tmp_path)
    build(tmp_path)
    chosen = "mgu and (equals_reference or nan)"
    words = ("-q", "-p", "no:cacheprovider", "tests/kernels/test_native.py", "-k", chosen)
    report = warm.python("-c", TESTS, *words, folder=tmp_path)
    assert report.returncode == 0, report.stdout + report.stderr
    assert re.search(r"^\d+ passed", report.stdout, re.MULTILINE), report.stdout
