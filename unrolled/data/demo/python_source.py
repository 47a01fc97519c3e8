"""Tagged sentences from Python itself: lines of its library's source, each token with its role."""

from __future__ import annotations

import ast
import builtins
import io
import keyword
import sysconfig
import token as kinds
import tokenize
from collections.abc import Iterator
from pathlib import Path

from unrolled.data.readers.tagged.sentences import Sentence
from unrolled.errors import UserError

EMBEDDED_SOURCE = "the source of Python's own library, each token tagged with its role"
# fmt: off
TRAINING = (
    "argparse", "bisect", "calendar", "cmd", "configparser", "contextlib", "copy", "csv", "difflib", "fractions",
    "functools", "heapq", "json/decoder", "pprint", "queue", "random", "sched", "shlex", "shutil", "socket",
    "string", "textwrap", "threading", "timeit", "trace", "weakref",
)
# fmt: on
VALIDATION = ("collections/__init__", "dataclasses", "http/client", "tempfile")

_BUILTINS = frozenset(dir(builtins))
_MARKS = frozenset(["(", ")", "[", "]", "{", "}", ",", ":", ";", ".", "@", "->", "...", "="])
_SKIPPED = (kinds.ENCODING, kinds.COMMENT, kinds.NL, kinds.INDENT, kinds.DEDENT, kinds.ENDMARKER)
_Place = tuple[int, int]  # line, column in characters


def embedded_sentences() -> tuple[list[Sentence], list[Sentence]]:
    """Lines to train on and, from other modules, lines to validate on; no line is in both."""
    folder = Path(sysconfig.get_path("stdlib"))
    train, valid = (
        [s for name in names for s in _of_module(folder / f"{name}.py")] for names in (TRAINING, VALIDATION)
    )
    seen = {sentence.words for sentence in train}
    valid = [sentence for sentence in valid if sentence.words not in seen]
    if not train or not valid:
        raise UserError(
            f"This Python has no source of its library in {folder}.", "Give a file of your own: --train FILE."
        )
    return list(dict.fromkeys(train)), list(dict.fromkeys(valid))


def _of_module(path: Path) -> Iterator[Sentence]:
    if path.is_file():
        yield from tagged_source(path.read_text(encoding="utf-8"))


def tagged_source(source: str) -> Iterator[Sentence]:
    """The logical lines of a Python source; every name is tagged with its role.

    >>> for line in tagged_source("def area(r: float):\\n    return math.pi * r ** 2\\n"):
    ...     print(*map("/".join, zip(line.words, line.tags)))
    def/keyword area/function (/mark r/parameter :/mark float/builtin )/mark :/mark
    return/keyword math/variable ./mark pi/attribute */operator r/variable **/operator 2/number
    """
    roles = _roles(source)
    line: list[tuple[str, str]] = []
    for text, kind, place in _tokens(source):
        if kind == kinds.NEWLINE:
            if len(line) > 1:  # a lone string is documentation
                words, tags = zip(*line, strict=True)
                yield Sentence(words, tags)
            line = []
        elif kind not in _SKIPPED:
            line.append((text, _tag(text, kind, roles.get(place), [word for word, _ in line[-1:]], line[:1])))


def _tag(text: str, kind: int, role: str | None, before: list[str], first: list[tuple[str, str]]) -> str:
    """A token's tag, from its kind, its role in the tree, and the words before it and first in its line."""
    if kind == kinds.STRING:
        return "string"
    if kind == kinds.NUMBER:
        return "number"
    if kind == kinds.OP:
        return "mark" if text in _MARKS else "operator"
    if keyword.iskeyword(text):
        return "keyword"
    if before and before[0] in ("def", "class"):
        return "function" if before[0] == "def" else "class"
    if first and first[0][0] in ("import", "from"):
        return "import"
    return role or ("keyword" if keyword.issoftkeyword(text) else "variable")


def _tokens(source: str) -> Iterator[tuple[str, int, _Place]]:
    """(text, kind, place); a string is one token in every version of Python, and only its first line is shown."""
    starts = {getattr(kinds, name) for name in ("FSTRING_START", "TSTRING_START") if hasattr(kinds, name)}
    ends = {getattr(kinds, name) for name in ("FSTRING_END", "TSTRING_END") if hasattr(kinds, name)}
    depth, opened = 0, (0, 0)
    lines = source.split("\n")
    for item in tokenize.generate_tokens(io.StringIO(source).readline):
        if item.type in starts:
            opened, depth = (opened if depth else item.start), depth + 1
        elif item.type in ends:
            depth -= 1
            if not depth:
                stop = item.end[1] if item.end[0] == opened[0] else None
                yield lines[opened[0] - 1][opened[1] : stop], kinds.STRING, opened
        elif not depth:
            text = item.string.split("\n")[0] if item.type == kinds.STRING else item.string
            yield text, item.type, item.start


def _roles(source: str) -> dict[_Place, str]:
    """Roles of names by their place, from the syntax tree."""
    lines = source.split("\n")
    roles: dict[_Place, str] = {}

    def put(line: int | None, column: int, role: str) -> None:
        assert line is not None
        text = lines[line - 1]
        roles[line, column if text.isascii() else len(text.encode()[:column].decode())] = (
            role  # columns of the tree count bytes
        )

    def put_attribute(node: ast.Attribute, role: str) -> None:
        put(node.end_lineno, (node.end_col_offset or 0) - len(node.attr.encode()), role)

    nodes = list(ast.walk(ast.parse(source)))
    bound = _bound(nodes)
    for node in nodes:
        if isinstance(node, ast.Name):
            known = node.id in _BUILTINS and isinstance(node.ctx, ast.Load)
            put(node.lineno, node.col_offset, bound.get(node.id, "builtin" if known else "variable"))
        elif isinstance(node, ast.Attribute):
            put_attribute(node, "attribute")
        elif isinstance(node, ast.arg):
            put(node.lineno, node.col_offset, "parameter")
        elif isinstance(node, ast.keyword) and node.arg:
            put(node.lineno, node.col_offset, "argument")
    for node in nodes:  # after the attributes: what is called is a method
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            put_attribute(node.func, "method")
    return roles


def _bound(nodes: list[ast.AST]) -> dict[str, str]:
    """The names of modules, classes and functions anywhere in a file; one line alone may be ambiguous."""
    bound: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            bound.update({(alias.asname or alias.name).split(".")[0]: "module" for alias in node.names})
        elif isinstance(node, ast.ClassDef):
            bound[node.name] = "class"
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            bound[node.name] = "function"
    return bound
