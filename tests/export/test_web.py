"""`unrolled export --web` without a browser: the folder, where onnxruntime-web comes from, and what is refused."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import unrolled
from tests.cli.test_generate import call
from unrolled import runtime
from unrolled.export import onnxruntime_web, page

STORED = Path(__file__).parent.parent / "compat" / "2026-11"
MODEL = STORED / "classify-letters.safetensors"
CONTENT = {"ort.wasm.bundle.min.mjs": b"// a module", "ort-wasm-simd-threaded.wasm": b"\0asm"}
PACKAGE = onnxruntime_web.PACKAGE
COPY = 'while [ "$2" ]; do shift; done; /bin/cp {}/ort.tgz "$1"/x.tgz'  # into the folder that is the last argument


@pytest.fixture(autouse=True)
def small_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The digests of two small files in place of the real ones, an empty cache, and no program on the path."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()}
    monkeypatch.setattr(onnxruntime_web, "DIGESTS", digests)
    monkeypatch.setenv("UNROLLED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/dist/{name}")
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    return path


def npm(folder: Path, script: str) -> None:
    """A program called npm."""
    (folder / "bin").mkdir(exist_ok=True)
    path = folder / "bin" / "npm"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_folder(tmp_path: Path) -> None:
    package = archive(tmp_path / "ort.tgz", CONTENT)
    folder = tmp_path / "out"
    code, _, err = call("export", MODEL, "--onnx", folder, "--no-check", "--web", "--onnxruntime-web", package)
    assert code == 0, err
    assert f"Its page: python -m http.server --bind 127.0.0.1 --directory {folder} 8000" in err
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    ours = {path.name for path in Path(str(page.PAGE)).iterdir()} | {"elements.js"}
    assert {"index.html", "main.js", "style.css", "classify.js"} <= ours
    expected = {"manifest.json", "whole.onnx", "index.html"} | {f"web/{name}" for name in ours - {"index.html"}}
    assert written == expected | {f"web/onnxruntime/{name}" for name in CONTENT}
    assert (folder / "web" / "onnxruntime" / "ort-wasm-simd-threaded.wasm").read_bytes() == b"\0asm"
    assert runtime.load(folder).predict("fine").labels  # the runtime takes the folder as before
    code, _, err = call("export", MODEL, "--onnx", folder, "--no-check", "--force")
    assert code == 0, err
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "whole.onnx"]


def test_a_page_asked_for_from_python(tmp_path: Path) -> None:
    model = unrolled.load(MODEL)
    for name, content in CONTENT.items():
        for place in ("flat", "a/dist", "b/node_modules/onnxruntime-web/dist", "c/package/dist"):
            (tmp_path / place).mkdir(parents=True, exist_ok=True)
            (tmp_path / place / name).write_bytes(content)
    for place in "flat", "a", "b", "c":
        given = tmp_path / place
        unrolled.export_onnx(model, tmp_path / "out", check=False, force=True, web=True, onnxruntime_web=given)
        assert (tmp_path / "out" / "index.html").is_file()


def test_npm_fetches_once(tmp_path: Path) -> None:
    archive(tmp_path / "ort.tgz", CONTENT)
    npm(tmp_path, f'echo "$@" > {tmp_path}/asked; {COPY.format(tmp_path)}')
    assert onnxruntime_web.onnxruntime_files() == CONTENT
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith(f"pack {PACKAGE} --silent --pack-destination ")
    (tmp_path / "bin" / "npm").unlink()
    assert onnxruntime_web.onnxruntime_files() == CONTENT  # from the cache
    kept = tmp_path / "cache" / f"onnxruntime-web-{onnxruntime_web.VERSION}"
    (kept / "ort-wasm-simd-threaded.wasm").write_bytes(b"damaged")
    with pytest.raises(unrolled.UserError, match="npm, which fetches it, is not installed"):
        onnxruntime_web.onnxruntime_files()


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    archive(tmp_path / "ort.tgz", CONTENT)
    npm(tmp_path, COPY.format(tmp_path))
    (tmp_path / "cache").write_text("a file in the place of the folder")
    assert onnxruntime_web.onnxruntime_files() == CONTENT


GIVE = rf"Run `npm pack {PACKAGE}` on a machine with npm, and give the file: --onnxruntime-web FILE\.tgz"


def test_no_npm(tmp_path: Path) -> None:
    code, _, err = call("export", MODEL, "--onnx", tmp_path / "out", "--web")
    assert code == 2
    assert f"The page needs {PACKAGE}, and npm, which fetches it, is not installed." in err
    assert not (tmp_path / "out").exists()
    with pytest.raises(unrolled.UserError, match=GIVE):
        onnxruntime_web.onnxruntime_files()


def test_npm_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm(tmp_path, 'echo "npm error code ENOTFOUND" >&2; echo "npm error no network" >&2; exit 1')
    message = rf"npm could not fetch {PACKAGE}: npm error no network\. The network or npm's settings .*{GIVE}"
    with pytest.raises(unrolled.UserError, match=message):
        onnxruntime_web.onnxruntime_files()
    npm(tmp_path, "exit 7")
    with pytest.raises(unrolled.UserError, match=rf"npm could not fetch {PACKAGE}: it ended with 7\."):
        onnxruntime_web.onnxruntime_files()
    npm(tmp_path, "exec /bin/sleep 20")
    monkeypatch.setattr(onnxruntime_web, "SECONDS", 0.2)
    with pytest.raises(unrolled.UserError, match=r"it took more than 0\.2 seconds"):
        onnxruntime_web.onnxruntime_files()


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(unrolled.UserError, match=rf"does not exist\. Give a folder or a \.tgz file of {PACKAGE}"):
        onnxruntime_web.onnxruntime_files(tmp_path / "nowhere")
    with pytest.raises(unrolled.UserError, match=r"has no ort\.wasm\.bundle\.min\.mjs\. Give a folder"):
        onnxruntime_web.onnxruntime_files(tmp_path)
    (tmp_path / "text.tgz").write_text("no archive")
    with pytest.raises(unrolled.UserError, match=rf"text\.tgz is not a readable archive.*npm pack {PACKAGE}"):
        onnxruntime_web.onnxruntime_files(tmp_path / "text.tgz")
    whole = archive(tmp_path / "whole.tgz", {**CONTENT, "more.mjs": b"x" * 5000}).read_bytes()
    (tmp_path / "half.tgz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(unrolled.UserError, match=r"half\.tgz is not a readable archive|half\.tgz has no"):
        onnxruntime_web.onnxruntime_files(tmp_path / "half.tgz")
    other = archive(tmp_path / "other.tgz", {**CONTENT, "ort-wasm-simd-threaded.wasm": b"altered"})
    message = rf"ort-wasm-simd-threaded\.wasm of .*other\.tgz is not that of {PACKAGE}: its SHA-256 is another one"
    with pytest.raises(unrolled.UserError, match=message):
        onnxruntime_web.onnxruntime_files(other)


def test_onnxruntime_web_alone(tmp_path: Path) -> None:
    code, _, err = call("export", MODEL, "--onnx", tmp_path / "out", "--onnxruntime-web", tmp_path)
    assert code == 2
    assert "onnxruntime_web is for a page, and none was asked for. Give --web too (web=True)." in err


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "caption",
            r"There is no page for a model of caption\. There are pages for classify, generate, recognize, tag,",
        ),
        ("forecast", r"There is no page for a model of forecast\..* Leave out --web \(web=False\)"),
        ("recognize-lines", r"no page for this model\. It reads pictures of lines, and the page hears recordings"),
    ],
)
def test_models_without_a_page(kind: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(unrolled.UserError, match=message):
        unrolled.export_onnx(unrolled.load(STORED / f"{kind}.safetensors"), tmp_path / "out", web=True)
    assert not (tmp_path / "out").exists()


def test_inputs_without_a_page() -> None:
    def model(task: str, assets: Any) -> Any:
        return SimpleNamespace(task=SimpleNamespace(name=task), assets=assets)

    frames = SimpleNamespace(frames=(3,), features=(), reader=SimpleNamespace(frames=(3,), kind="frames"))
    features = SimpleNamespace(frames=(), features=("case",))
    for task, assets, reason in (
        ("classify", frames, "It reads frames, and the page has a box for text."),
        ("tag", frames, "It reads frames, and the page has a box for text."),
        ("tag", features, "It reads columns of features beside words, and the page has a box for text."),
        ("recognize", frames, "It reads frames, and the page hears recordings."),
    ):
        with pytest.raises(unrolled.UserError) as caught:
            page.check_page(model(task, assets))
        assert str(caught.value) == f"There is no page for this model. {reason} Leave out --web (web=False)."
