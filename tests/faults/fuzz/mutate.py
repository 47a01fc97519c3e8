"""Ways to damage a file: bytes, lines, numbers, and the structure of JSON, zip, npy and safetensors files."""

from __future__ import annotations

import io
import json
import re
import struct
import warnings
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

Mutator = Callable[[bytes, Random], bytes]

BYTES = [b"\0", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\n", b"\r\n", b"\t", b'"', b",", b"\\", b"\x80", b"\xc3"]
BYTES += ["é".encode(), "猫".encode(), "\u202e".encode(), "\u2028".encode(), b"\x1f\x8b\x08", b"PK\x03\x04", b"\0" * 64]
NUMBERS = ["0", "-1", "1", "2", "255", "65536", "2147483647", "-2147483649", "4294967295", "9223372036854775808"]
NUMBERS += [
    "1e999",
    "-1e999",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "1e-320",
    "0.5",
    "99999999999999999999",
    "1_0",
    "٣",
    "-0",
    "+1",
]
VALUES: list[Any] = [None, True, False, 0, -1, 1, 7, 10**9, 10**12, 2**63, 1e308, 0.5, float("nan"), float("inf")]
VALUES += ["", "x", "1", "\ud800", "a" * 5000, [], {}, [[]], [1, "a", None], {"a": 1}, [0, 0], "<unk>", "\0"]


def mutated(seed: bytes, kind: str, random: Random) -> bytes:
    """A damaged copy: mostly one change, sometimes several."""
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        choices = MUTATORS[kind]
        seed = random.choice(choices)(seed, random)[:LARGEST]
    return seed


LARGEST = 4 << 20  # bytes


def flip(data: bytes, random: Random) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    for _ in range(random.choice([1, 1, 2, 8])):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def overwrite(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    new = random.choice([*BYTES, random.randbytes(random.choice([1, 4, 16]))])
    return data[:at] + new + data[at + len(new) :]


def insert(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.choice([*BYTES, random.randbytes(4)]) + data[at:]


def cut(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at]


def remove(data: bytes, random: Random) -> bytes:
    first, last = _span(data, random)
    return data[:first] + data[last:]


def repeat(data: bytes, random: Random) -> bytes:
    first, last = _span(data, random)
    return data[:last] + data[first:last] * random.choice([1, 2, 50]) + data[last:]


def move(data: bytes, random: Random) -> bytes:
    first, last = _span(data, random)
    piece, rest = data[first:last], data[:first] + data[last:]
    at = random.randrange(len(rest) + 1)
    return rest[:at] + piece + rest[at:]


def number(data: bytes, random: Random) -> bytes:
    """One number of a text becomes another."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?(e[-+]?\d+)?", data))
    if not found:
        return flip(data, random)
    one = random.choice(found)
    return data[: one.start()] + random.choice(NUMBERS).encode() + data[one.end() :]


def lines(data: bytes, random: Random) -> bytes:
    """A line is lost, doubled, moved, emptied, or changed in one of its cells."""
    rows = data.split(b"\n")
    at, other = random.randrange(len(rows)), random.randrange(len(rows))
    what = random.randrange(6)
    if what == 0:
        del rows[at]
    elif what == 1:
        rows.insert(other, rows[at])
    elif what == 2:
        rows[at], rows[other] = rows[other], rows[at]
    elif what == 3:
        rows[at] = random.choice([b"", b" ", b"\t", b"#", b"\\", b"\xff", b"a\tb\tc\td", b'"'])
    elif what == 4:
        cells = re.split(rb"([\t, ])", rows[at])
        cells[random.randrange(len(cells))] = random.choice([*BYTES, b"", b"x" * 300])
        rows[at] = b"".join(cells)
    else:
        rows = [row + b"\r" for row in rows]
    return b"\n".join(rows)


def json_document(data: bytes, random: Random) -> bytes:
    """Something inside a JSON document is lost, doubled, nested, or becomes another thing."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return flip(data, random)
    return json.dumps(_changed(document, random)).encode()


def json_lines(data: bytes, random: Random) -> bytes:
    rows = data.split(b"\n")
    at = random.randrange(len(rows))
    rows[at] = json_document(rows[at], random)
    return b"\n".join(rows)


def nested(data: bytes, random: Random) -> bytes:
    """Brackets without end where a value stands."""
    depth = random.choice([500, 20_000, 200_000])
    opening = random.choice([b"[", b'{"a":', b"[[", b"{a={", b"("])
    deep = opening * depth + (b"]" * depth if random.random() < 0.5 else b"")
    spots = [m.end() for m in re.finditer(rb"[=:\[,]\s*", data)] or [0]
    at = random.choice(spots)
    return data[:at] + deep + data[at:]


def _changed(document: Any, random: Random) -> Any:
    places = list(_places(document))
    if not places:
        return random.choice(VALUES)
    parent, key = random.choice(places)
    what = random.randrange(6)
    if what == 0 and isinstance(parent, dict):
        del parent[key]
    elif what == 0:
        parent.pop(key)
    elif what == 1:
        other, name = random.choice(places)
        parent[key] = json.loads(json.dumps(other[name]))
    elif what == 2:
        parent[key] = [parent[key]]
    elif what == 3 and isinstance(parent, list):
        parent.extend([parent[key]] * random.choice([1, 100]))
    elif what == 3:
        parent[random.choice(["new", "", "tokens", "shape", str(key).upper()])] = parent[key]
    else:
        parent[key] = random.choice(VALUES)
    return document


def _places(value: Any, parents: tuple[Any, ...] = ()) -> Any:
    """(container, key) of everything inside; long lists by some of their items."""
    if isinstance(value, dict):
        items: Any = value.items()
    elif isinstance(value, list):
        items = [(i, value[i]) for i in range(0, len(value), max(1, len(value) // 8))]
    else:
        return
    for key, inner in items:
        yield value, key
        yield from _places(inner)


def archive(data: bytes, random: Random) -> bytes:
    """A zip whose members are damaged, lost or renamed, and whose list and checksums are right."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            members = [(name, file.read(name)) for name in file.namelist()]
    except Exception:
        return flip(data, random)
    if not members:
        return flip(data, random)
    at = random.randrange(len(members))
    name, content = members[at]
    what = random.randrange(7)
    if what == 0:
        del members[at]
    elif what == 1:
        members[at] = (random.choice(["a.png", "frames.npy", "labels.npy", "x", "../x.npy", name.upper()]), content)
    elif what == 2:
        members[at] = (name, random.choice([b"", b"text", content[: len(content) // 2]]))
    elif what == 3:
        members[at] = (name, flip(content, random))
    elif what == 4:
        members.append(members[at])
    else:
        members[at] = (name, npy(content, random))
    raw = io.BytesIO()
    method = random.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with warnings.catch_warnings(), zipfile.ZipFile(raw, "w", method) as file:
        warnings.simplefilter("ignore")  # of names that are there twice
        for one, inside in members:
            file.writestr(zipfile.ZipInfo(one), inside, method)
    return raw.getvalue()


SHAPES = [
    "()",
    "(1,)",
    "(0,)",
    "(0, 3)",
    "(1000000000000,)",
    "(7, 1000000000000)",
    "(-1,)",
    "(2, -3)",
    "(3.5,)",
    "('a',)",
]
SHAPES += ["(" * 3000, "(1, 2", "(4294967296, 4294967296)", "(" + "1," * 40 + ")", "None", "5", "[5]"]
TYPES = ["<f4", "<f8", ">f8", "<i8", "|u1", "|b1", "|O", "<U5", "<U100000000", "|S3", "<c16", "<M8[ns]", "|V8", "", "x"]
TYPES += ["[('a', '<f4')]", "<f16", "<f2", "|S0", "<U0"]


def npy(data: bytes, random: Random) -> bytes:
    """Another type or shape in the header of an npy file."""
    found = re.match(rb"\x93NUMPY(.)(.)(..)(\{[^\n]*)\n", data, re.S)
    if not found:
        return flip(data, random)
    header, body = found[4].decode("latin1"), data[found.end() :]
    if random.random() < 0.5:
        header = re.sub(r"'shape': [^}]*\)", "'shape': " + random.choice(SHAPES).replace("\\", ""), header)
    elif random.random() < 0.8:
        kind = random.choice(TYPES)
        header = re.sub(r"'descr': '[^']*'", f"'descr': {kind if kind[:1] == '[' else repr(kind)}", header)
    else:
        header = flip(header.encode("latin1"), random).decode("latin1")
    raw = header.encode("latin1") + b"\n"
    if len(raw) >= 1 << 16:
        return data
    return b"\x93NUMPY" + found[1] + found[2] + struct.pack("<H", len(raw)) + raw + body


def safetensors(data: bytes, random: Random) -> bytes:
    """The header of a model file damaged: its list of tensors, or what it says of the model; often without digests."""
    try:
        size = int.from_bytes(data[:8], "little")
        header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
        about = json.loads(header["__metadata__"]["unrolled"])
    except Exception:
        return flip(data, random)
    if not isinstance(about, dict):
        return flip(data, random)
    if random.random() < 0.8:
        if random.random() < 0.8:
            about.pop("sha256", None)
        if random.random() < 0.7:
            section = random.choice([key for key in about if isinstance(about[key], (dict, list))] or [""])
            if section:
                about[section] = _changed(about[section], random)
        else:
            about = _changed(about, random)
        text = json.dumps(about)
        if random.random() < 0.1:
            text = random.choice(["", "{", "[]", "3", "null", '"a"', "[" * 100_000, text[:-5]])
        header["__metadata__"]["unrolled"] = text
    else:
        header = _changed(header, random)
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    if random.random() < 0.2:
        body = flip(body, random)
    return len(raw).to_bytes(8, "little") + raw + body


ANY: list[Mutator] = [flip, flip, overwrite, insert, cut, remove, repeat, move]
MUTATORS: dict[str, list[Mutator]] = {
    "binary": ANY,
    "text": [*ANY, number, number, lines, lines, lines],
    "json": [*ANY, number, json_document, json_document, json_document, json_document, nested],
    "jsonl": [*ANY, number, lines, json_lines, json_lines, json_lines, nested],
    "toml": [*ANY, number, number, lines, lines, nested],
    "zip": [*ANY, archive, archive, archive, archive],
    "npy": [*ANY, npy, npy, npy],
    "model": [flip, overwrite, cut, remove, *[safetensors] * 8],
}


def _span(data: bytes, random: Random) -> tuple[int, int]:
    first = random.randrange(len(data) + 1)
    return first, min(len(data), first + random.choice([1, 2, 8, 64, 1024]))
