"""Packages: wheels whose tag and binary agree, builds that fail aloud, recipes that follow pyproject.toml."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import struct
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

from unrolled.kernels import NOT_BUILT

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


checker = load("packaging/check_wheel.py")


def native() -> Path:
    if "native" in NOT_BUILT:
        pytest.skip("the native engine is not built")
    from unrolled.kernels import _native

    return Path(_native.__file__)


def installed_tag() -> str:
    facts = importlib.metadata.distribution("unrolled").read_text("WHEEL") or ""
    found = re.search(r"^Tag: (\S+)$", facts, re.MULTILINE)
    assert found
    return found[1]


def wheel(folder: Path, tag: str, *, name: str | None = None, inside: str | None = None, binary: bytes = b"") -> Path:
    """A wheel with the tag, and the installed extension or another binary in it."""
    path = folder / f"unrolled-1.0-{tag}.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"unrolled/kernels/{name or native().name}", binary or native().read_bytes())
        file.writestr("unrolled-1.0.dist-info/WHEEL", f"Root-Is-Purelib: false\nTag: {inside or tag}\n")
        file.writestr("unrolled-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: unrolled\nVersion: 1.0\n")
    return path


def test_the_tag_of_this_installation_and_its_binary_agree(tmp_path: Path) -> None:
    tag = installed_tag()
    if "native" in NOT_BUILT:
        assert tag == "py3-none-any"
        return
    checker.check_name(f"unrolled/kernels/{native().name}", *tag.split("-"))
    if sys.version_info >= (3, 12):
        assert tag.startswith("cp312-abi3-")
    else:
        assert tag.startswith("cp311-cp311-")
        checker.check_wheel(wheel(tmp_path, tag))


def test_the_kernels_of_a_wheel_pass_their_checks(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "packaging/check_kernels.py", wheel(tmp_path, "cp312-abi3-linux_x86_64")],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stderr
    for what in ("lstm backward", "attention, rows apart", "dictionary search", "changed lines"):
        assert f"  {what}: " in run.stdout


def test_a_name_that_no_check_covers_is_an_error() -> None:
    kernels = load("packaging/check_kernels.py")
    with pytest.raises(SystemExit, match="Nothing checks TurnJob, turn: write a check"):
        kernels.check_names(SimpleNamespace(CELLS={}, TurnJob=1, turn=2))


@pytest.mark.parametrize(
    ("tag", "name", "message"),
    [
        ("cp312-cp312-linux_x86_64", "_native.abi3.so", "The tag says cp312-cp312-linux_x86_64, the binary is named"),
        ("cp312-abi3-linux_x86_64", "_native.cpython-312-x86_64-linux-gnu.so", "The tag says cp312-abi3-linux_x86_64"),
        ("cp311-cp311-win_amd64", "_native.pyd", "The tag says cp311-cp311-win_amd64"),
        ("py3-abi3-linux_x86_64", "_native.abi3.so", "abi3 needs the oldest Python it runs on"),
        ("py3-none-any", "other.so", "holds no native extension"),
    ],
)
def test_a_tag_that_is_not_the_binarys_is_refused(tmp_path: Path, tag: str, name: str, message: str) -> None:
    with pytest.raises(checker.WrongWheel, match=message):
        checker.check_wheel(wheel(tmp_path, tag, name=name, binary=b"\x7fELF"))


def test_a_binary_of_another_machine_is_refused(tmp_path: Path) -> None:
    if platform.system() != "Linux":
        pytest.skip("the extension is an ELF file on Linux alone")
    other = "aarch64" if platform.machine() == "x86_64" else "x86_64"
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    name = f"_native.cpython-{python[2:]}-{other}-linux-gnu.so"
    for system in (f"linux_{other}", f"manylinux_2_28_{other}"):
        with pytest.raises(checker.WrongWheel, match="the binary is for another machine"):
            checker.check_wheel(wheel(tmp_path, f"{python}-{python}-{system}", name=name))
    for system, suffix in (("win_amd64", f".{python}-win_amd64.pyd"), ("macosx_14_0_arm64", name[7:])):
        with pytest.raises(checker.WrongWheel, match="the binary is for another machine"):
            checker.check_wheel(wheel(tmp_path, f"{python}-{python}-{system}", name=f"_native{suffix}"))
    with pytest.raises(checker.WrongWheel, match="neither ELF nor Mach-O nor PE"):
        checker.check_wheel(wheel(tmp_path, f"{python}-{python}-linux_{other}", name=name, binary=b"text"))


def test_tags_inside_and_outside_must_be_the_same(tmp_path: Path) -> None:
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    tag = f"{python}-{python}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    name = f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    checker.check_wheel(wheel(tmp_path, tag, name=name))
    with pytest.raises(checker.WrongWheel, match="has the tags"):
        checker.check_wheel(wheel(tmp_path, tag, name=name, inside="py3-none-any"))


def test_symbols_outside_the_stable_abi_are_found(tmp_path: Path) -> None:
    """A binary for one Python alone, under the name of one for many."""
    pytest.importorskip("abi3audit")
    if sys.version_info >= (3, 12) or platform.system() != "Linux":
        pytest.skip("only the build for Python 3.11 uses other symbols")
    with pytest.raises(checker.WrongWheel, match="abi3audit refuses"):
        checker.check_wheel(wheel(tmp_path, f"cp312-abi3-linux_{platform.machine()}", name="_native.abi3.so"))


def mach(symbols: list[tuple[str, int]]) -> bytes:
    """A Mach-O file for arm64 that needs symbols, each from the library of a number."""
    entries, names = b"", b"\0"
    for name, library in symbols:
        entries += struct.pack("<IBBHQ", len(names), 1, 0, library << 8, 0)
        names += name.encode() + b"\0"
    header = struct.pack("<8I", 0xFEEDFACF, 0x0100000C, 0, 6, 1, 24, 0, 0)
    return header + struct.pack("<6I", 2, 24, 56, len(symbols), 56 + len(entries), len(names)) + entries + names


def test_on_macos_only_pythons_symbols_are_found_late(tmp_path: Path) -> None:
    tag, name = "cp311-cp311-macosx_14_0_arm64", "_native.cpython-311-darwin.so"
    known = [("_malloc", 1), ("_PyList_New", 254), ("__Py_NoneStruct", 0)]
    checker.check_wheel(wheel(tmp_path, tag, name=name, binary=mach(known)))
    for number in (0, 254):
        with pytest.raises(
            checker.WrongWheel, match="No library has the symbol _pthread_atfork, and it is not Python's"
        ):
            checker.check_wheel(wheel(tmp_path, tag, name=name, binary=mach([*known, ("_pthread_atfork", number)])))


BUILD = (
    "import sys; sys.path.insert(0, 'native'); import build_backend; print(build_backend.build_wheel(*sys.argv[1:]))"
)


def build_with_a_broken_compiler(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("scikit_build_core")
    settings = f"build_backend.build_wheel(sys.argv[1], {{'build-dir': {str(folder / 'build')!r}}})"
    code = BUILD.replace("build_backend.build_wheel(*sys.argv[1:])", settings)
    environment = {**os.environ, "CXX": "/bin/false", **variables}
    command = [sys.executable, "-c", code, str(folder / "dist")]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_without_a_compiler_the_package_installs_in_python_alone(tmp_path: Path) -> None:
    run = build_with_a_broken_compiler(tmp_path, UNROLLED_REQUIRE_NATIVE="0")
    assert run.returncode == 0, run.stderr
    assert [path.name for path in (tmp_path / "dist").iterdir()] == ["unrolled-0.1.0-py3-none-any.whl"]


def test_where_the_extension_is_required_a_failed_build_is_an_error(tmp_path: Path) -> None:
    run = build_with_a_broken_compiler(tmp_path, UNROLLED_REQUIRE_NATIVE="1")
    assert run.returncode != 0
    assert list(tmp_path.glob("dist/*.whl")) == []


def test_where_the_extension_is_required_a_missing_cmake_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = pytest.importorskip("scikit_build_core.errors")
    backend = load("native/build_backend.py")
    error = errors.CMakeNotFoundError("Could not find CMake with version >=3.18")
    monkeypatch.setenv("UNROLLED_REQUIRE_NATIVE", "1")
    with pytest.raises(errors.CMakeNotFoundError):
        backend._without_cmake(None, error)
    monkeypatch.setenv("UNROLLED_REQUIRE_NATIVE", "0")
    assert backend._without_cmake(None, error) == {"wheel.cmake": "false", "wheel.py-api": "py3"}


def test_the_conda_recipe_has_the_requirements_of_the_project() -> None:
    recipe = (ROOT / "packaging/conda/recipe.yaml").read_text()
    run = re.search(r"^  run:\n((?:    - .+\n)+)", recipe, re.MULTILINE)
    host = re.search(r"^  host:\n((?:    - .+\n)+)", recipe, re.MULTILINE)
    assert run
    assert host
    renamed = {"torch": "pytorch", "matplotlib": "matplotlib-base"}

    def named(requirements: list[str]) -> set[str]:
        parts = [re.fullmatch(r"([\w-]+)(.*)", one) for one in requirements]
        return {f"{renamed.get(part[1], part[1])} {part[2]}".strip() for part in parts if part}

    project = PROJECT["project"]
    needed = {*named(project["dependencies"]), f"python {project['requires-python']}"}
    assert set(re.findall(r"- (.+)", run[1])) == needed
    assert set(re.findall(r"- (.+)", host[1])) == {"python", "pip", *named(PROJECT["build-system"]["requires"])}
    assert f'version: "{project["version"]}"' in recipe


def test_the_dockerfile_copies_what_the_build_reads() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = {name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]}
    assert all((ROOT / name).exists() for name in copied)
    assert {"CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE", "native", "unrolled"} <= copied
    assert lines.index("USER unrolled") < lines.index('ENTRYPOINT ["unrolled"]')


def test_the_workflow_builds_tests_and_checks_every_wheel_before_it_publishes() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/wheels.yml").read_text())["jobs"]
    systems = [one["name"] for one in jobs["wheels"]["strategy"]["matrix"]["include"]]
    assert systems == jobs["newer-pythons"]["strategy"]["matrix"]["wheels"]
    assert jobs["publish"]["needs"] == ["wheels", "newer-pythons", "source"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    scripts = re.findall(r"packaging/\w+\.py", (ROOT / ".github/workflows/wheels.yml").read_text())
    assert {"packaging/check_wheel.py", "packaging/test_installed.py"} <= set(scripts)
    builder = PROJECT["tool"]["cibuildwheel"]
    for settings in (builder, builder["macos"], builder["windows"]):
        assert settings["environment"]["UNROLLED_REQUIRE_NATIVE"] == "1"
    assert builder["test-command"] == "python {project}/packaging/test_installed.py"


def test_the_workflow_names_files_that_exist() -> None:
    """Scripts of its commands, paths that start it, and the tests that a wheel must pass."""
    text = (ROOT / ".github/workflows/wheels.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    commands.append(PROJECT["tool"]["cibuildwheel"]["test-command"].replace("{project}/", ""))
    scripts = [word for command in commands for word in command.split() if word.endswith((".py", ".sh", ".txt"))]
    started = re.search(r"paths: \[(.+)\]", text)
    assert started
    paths = [path.strip(' "').removesuffix("/**") for path in started[1].split(",")]
    tests = [one.removeprefix("--ignore=") for one in load("packaging/test_installed.py").CORE]
    assert len(scripts) == 3
    assert len(paths) == 5
    assert [name for name in (*scripts, *paths, *tests) if not (ROOT / name).exists()] == []


def test_pythons_are_the_same_everywhere() -> None:
    """The metadata, the pages and the workflow name the same Pythons, and every one has a wheel."""
    listed = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert PROJECT["project"]["requires-python"] == f">={listed[0]}"
    assert f"Python {listed[0]} to {listed[-1]}" in (ROOT / "docs/install.md").read_text()
    built = [one[2:-2].replace("3", "3.", 1) for one in PROJECT["tool"]["cibuildwheel"]["build"]]
    newer = yaml.safe_load((ROOT / ".github/workflows/wheels.yml").read_text())["jobs"]["newer-pythons"]
    assert [*built, *newer["strategy"]["matrix"]["python"]] == listed
    assert PROJECT["tool"]["scikit-build"]["wheel"]["py-api"] == f"cp{built[-1].replace('.', '')}"


def test_importing_the_package_loads_nothing_large() -> None:
    large = {"matplotlib", "numpy", "pyarrow", "pydantic", "rich", "tokenizers", "torch", "typer"}
    code = f"import sys, unrolled; sys.exit(sorted({large!r} & set(sys.modules)) or None)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_running_a_model_loads_no_metrics_and_no_pictures() -> None:
    unused = {"jiwer", "matplotlib", "plotly", "rapidfuzz", "sacrebleu", "sklearn"}
    stored = ROOT / "tests/compat/2026-11/classify.safetensors"
    code = f"import sys, unrolled; unrolled.load({str(stored)!r}).predict('fine'); "
    code += f"sys.exit(sorted({unused!r} & set(sys.modules)) or None)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
