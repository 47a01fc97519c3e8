"""The documents are true: code runs, links, paths and options exist, and the map of the code is the tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.test_architecture import ORDER
from unrolled.cli import app as command

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
HIDDEN = {"build", "dist", "runs", "node_modules"}
DOCUMENTS = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part in HIDDEN or part.startswith(".") for part in path.relative_to(ROOT).parts[:-1])
)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FOLDERS = "unrolled|native|tests|benchmarks|recipes|docs|examples"
PATH = re.compile(rf"(?<![\w/.-])(?:{FOLDERS})/[\w./*-]*[\w*/]")
COMMAND = re.compile(r"\bunrolled (lm \w+|[a-z]+)\b([^#`|\n]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
WIDTH = 120


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of one page share their names."""
    text = page.read_text()
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(1))
        exec(compile("\n" * line + block[1], str(page), "exec"), names)


def test_the_readme_has_code() -> None:
    assert len(BLOCK.findall(PAGES[0].read_text())) >= 3


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_lines_fit(document: Path) -> None:
    lines = document.read_text().splitlines()
    assert [number for number, line in enumerate(lines, 1) if len(line) > WIDTH] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_lead_somewhere(document: Path) -> None:
    for target, heading in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", document.read_text()):
        page = document.parent / target if target else document
        assert page.exists(), f"{name(document)} links to {target}"
        assert not heading or heading in anchors(page), f"{name(document)} links to {target}#{heading}"


def anchors(page: Path) -> set[str]:
    """Headings of a page, as GitHub names them in links."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_named_paths_exist(document: Path) -> None:
    missing = [path for path in PATH.findall(document.read_text()) if not is_there(path)]
    assert missing == [], f"{name(document)} names paths that do not exist"


def is_there(path: str) -> bool:
    return any(part.isupper() for part in re.split(r"[/.]", path)) or bool(list(ROOT.glob(path.rstrip("/"))))


def test_options_of_shown_commands_exist() -> None:
    shown = [match for page in PAGES for match in COMMAND.findall(page.read_text()) if OPTION.search(match[1])]
    runner = CliRunner(env={"COLUMNS": "200"})
    helps = {verb: runner.invoke(command.app, [*verb.split(), "--help"]).output for verb in {verb for verb, _ in shown}}
    missing = [
        f"unrolled {verb} {option}"
        for verb, options in shown
        for option in OPTION.findall(options)
        if not re.search(rf"{option}(?![\w-])", helps[verb])
    ]
    assert missing == []


def test_the_map_is_the_tree() -> None:
    """CONTRIBUTING.md names every folder of the package and of the C++ core, with one line each."""
    drawn = the_map()
    assert [path for path in drawn if not (ROOT / path).exists()] == [], "CONTRIBUTING.md's map names missing paths"
    assert [path for path, line in drawn.items() if not line] == [], "CONTRIBUTING.md's map says nothing of these"
    assert folders() - set(drawn) == set(), "CONTRIBUTING.md's map lacks these folders"


def the_map() -> dict[str, str]:
    """Paths of the map in CONTRIBUTING.md and what it says of each; two more spaces are one folder deeper."""
    tree = re.search(r"^```\nunrolled/.*?^```", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE | re.DOTALL)
    assert tree, "CONTRIBUTING.md has a map of the code that begins with unrolled/"
    drawn: dict[str, str] = {}
    parents: list[str] = []
    for line in tree[0].splitlines()[1:-1]:
        depth = (len(line) - len(line.lstrip())) // 2
        entry, _, says = line.strip().partition(" ")
        parents = [*parents[:depth], entry]
        drawn["".join(parents).rstrip("/")] = says.strip()
    return drawn


def folders() -> set[str]:
    """Folders with source files, below unrolled/ and native/."""
    files = (path for top in ("unrolled", "native") for path in (ROOT / top).rglob("*") if path.is_file())
    return {name(path.parent) for path in files if "__pycache__" not in path.parts and path.suffix != ".so"}


def test_contributing_shows_the_import_order() -> None:
    order = " → ".join(part for part in ORDER if not part.startswith("__"))
    assert order in " ".join((ROOT / "CONTRIBUTING.md").read_text().split())
