"""Headers that Python and CUDA sources share, declared once: the structure of a kernel's arguments, and constants."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping

Members = tuple[tuple[str, type], ...]


def members(pointers: Iterable[str], integers: Iterable[str], *doubles: str) -> Members:
    """The fields of a ctypes structure; every one has 8 bytes, so that no compiler adds padding."""
    kinds = ((ctypes.c_void_p, pointers), (ctypes.c_int64, integers), (ctypes.c_double, doubles))
    return tuple((name, kind) for kind, names in kinds for name in names)


def arguments_header(pointers: Mapping[str, str], integers: Iterable[str], *doubles: str) -> str:
    """`arguments.h`, which the kernels include: the same structure in C++. `pointers` have the types they point to."""
    kinds = [(f"{kind}*", name) for name, kind in pointers.items()]
    kinds += [("int64_t", name) for name in integers] + [("double", name) for name in doubles]
    return "#pragma once\n\nstruct Arguments {\n" + "".join(f"    {kind} {name};\n" for kind, name in kinds) + "};\n"


def constants_header(values: Mapping[str, object]) -> str:
    """`constants.h`, which the kernels include: the names in capitals."""
    constants = "".join(f"constexpr int {name} = {value};\n" for name, value in values.items() if name.isupper())
    return "#pragma once\n\n" + constants
