"""Checks that the tag of a wheel and the binary inside agree.

Usage: python packaging/check_wheel.py WHEEL...

A wheel must hold the native extension, built for the processor and system of its tag, named for its Python: `abi3` for
any Python from the tag's on, otherwise that Python alone. An `abi3` binary may use only symbols of the stable ABI;
abi3audit (from PyPI) reads them. On macOS a symbol that no library has is found only when Python loads the binary: all
such symbols must be Python's.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

# the processor's number in an ELF, Mach-O or PE file, by platform tag
ELF = {"x86_64": 62, "aarch64": 183}
MACH = {"x86_64": 0x01000007, "arm64": 0x0100000C}
PE = {"win_amd64": 0x8664, "win_arm64": 0xAA64}


class WrongWheel(Exception):
    """A wheel whose tag and content disagree."""


def check_wheel(path: Path) -> None:
    """Raises WrongWheel unless tag and binary of a wheel agree."""
    match = re.fullmatch(
        r"(?P<name>[^-]+)-(?P<version>[^-]+)-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl", path.name
    )
    if not match:
        raise WrongWheel(f"{path.name} is not the name of a wheel.")
    python, abi, platform = match["python"], match["abi"], match["platform"]
    with zipfile.ZipFile(path) as wheel:
        native = extension_in(wheel)
        binary = wheel.read(native)
        facts = Parser().parsestr(wheel.read(f"{match['name']}-{match['version']}.dist-info/WHEEL").decode())
    check_name(native, python, abi, platform)
    check_processor(binary, platform)
    if platform.startswith("macosx"):
        check_late_symbols(binary)
    expected = {f"{python}-{abi}-{one}" for one in platform.split(".")}
    if facts["Root-Is-Purelib"] != "false" or set(facts.get_all("Tag", [])) != expected:
        raise WrongWheel(
            f"The WHEEL file of {path.name} has the tags {facts.get_all('Tag')}; expected {sorted(expected)}."
        )
    if abi == "abi3":
        check_symbols(path, python)


def extension_in(wheel: zipfile.ZipFile) -> str:
    """The path of the native extension in a wheel."""
    found = [name for name in wheel.namelist() if re.fullmatch(r"unrolled/kernels/_native\.(.*\.)?(so|pyd)", name)]
    if len(found) != 1:
        raise WrongWheel(f"{wheel.filename} holds {found or 'no native extension'}; expected one file _native.")
    return found[0]


def check_name(native: str, python: str, abi: str, platform: str) -> None:
    """The suffix by which Python finds the extension belongs to the tag."""
    suffix = native.removeprefix("unrolled/kernels/_native")
    windows = platform.startswith("win")
    if abi == "abi3":
        if not re.fullmatch(r"cp3\d+", python):
            raise WrongWheel(f"abi3 needs the oldest Python it runs on, such as cp312; the tag has {python}.")
        fits = suffix == (".pyd" if windows else ".abi3.so")
    else:
        number = abi.removeprefix("cp")
        fits = suffix.startswith(f".{abi}-") if windows else suffix.startswith(f".cpython-{number}-")
        fits = fits and python == abi
    if not fits:
        raise WrongWheel(f"The tag says {python}-{abi}-{platform}, the binary is named _native{suffix}.")


def check_processor(binary: bytes, platform: str) -> None:
    """The binary is of the tag's system and processor."""
    if binary[:4] == b"\x7fELF":
        found, wanted = (
            struct.unpack_from("<H", binary, 18)[0],
            [v for k, v in ELF.items() if "linux" in platform and platform.endswith(k)],
        )
    elif binary[:4] == b"\xcf\xfa\xed\xfe":
        found, wanted = (
            struct.unpack_from("<I", binary, 4)[0],
            [v for k, v in MACH.items() if platform.startswith("macosx") and platform.endswith(k)],
        )
    elif binary[:2] == b"MZ":
        found = struct.unpack_from("<H", binary, struct.unpack_from("<I", binary, 60)[0] + 4)[0]
        wanted = [PE[platform]] if platform in PE else []
    else:
        raise WrongWheel(f"The extension begins with {binary[:4]!r}: neither ELF nor Mach-O nor PE.")
    if wanted != [found]:
        raise WrongWheel(f"The tag says {platform}, the binary is for another machine (number {found:#x}).")


def check_late_symbols(binary: bytes) -> None:
    """The symbols of a Mach-O file that are looked up when it is loaded are Python's."""
    commands, place = struct.unpack_from("<I", binary, 16)[0], 32
    for _ in range(commands):
        command, size, symbols, count, names = struct.unpack_from("<5I", binary, place)
        if command == 2:  # LC_SYMTAB
            break
        place += size
    else:
        raise WrongWheel("The Mach-O file has no table of symbols.")
    for number in range(count):
        name, kind, _, description = struct.unpack_from("<IBBH", binary, symbols + 16 * number)
        undefined, late = kind & 0x0E == 0 and kind & 1, not 1 <= description >> 8 <= 253  # the number of a library
        text = binary[names + name : binary.index(b"\0", names + name)].decode()
        if undefined and late and not text.startswith(("_Py", "__Py")):
            raise WrongWheel(f"No library has the symbol {text}, and it is not Python's.")


def check_symbols(path: Path, python: str) -> None:
    """An abi3 binary uses only symbols of the stable ABI of its Python."""
    audit = [sys.executable, "-m", "abi3audit", "--strict", "--assume-minimum-abi3", f"3.{python[3:]}", str(path)]
    run = subprocess.run(audit, capture_output=True, text=True)
    if run.returncode:
        raise WrongWheel(f"abi3audit refuses {path.name}:\n{run.stdout}{run.stderr}")


def main() -> None:
    for name in sys.argv[1:]:
        try:
            check_wheel(Path(name))
        except WrongWheel as error:
            sys.exit(f"{name}: {error}")
        print(f"{name}: tag and binary agree")


if __name__ == "__main__":
    main()
