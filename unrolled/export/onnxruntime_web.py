"""onnxruntime-web, which runs graphs in a browser: fetched from npm once, compared with known digests, and kept."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from unrolled.errors import UserError
from unrolled.kernels.cuda.compiler import cache_folder
from unrolled.training.checkpoint import write_atomically

VERSION = "1.30.0"
# The CPU engine: of its many files a page needs two. In the package they are in the folder dist.
DIGESTS = {
    "ort.wasm.bundle.min.mjs": "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    "ort-wasm-simd-threaded.wasm": "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
}
PACKAGE = f"onnxruntime-web@{VERSION}"
SECONDS = 300  # for a download
MOST_BYTES = 64 * 2**20  # of a file in an archive
GIVE = f"`npm pack {PACKAGE}` on a machine with npm, and give the file: --onnxruntime-web FILE.tgz (onnxruntime_web=)."

Files = dict[str, bytes]


def onnxruntime_files(given: str | Path | None = None) -> Files:
    """The files by name: those of a folder or archive, of the user's cache, or of npm, which then go to the cache."""
    if given is not None:
        return _given(Path(given))
    kept = cache_folder() / f"onnxruntime-web-{VERSION}"
    files = {name: (kept / name).read_bytes() for name in DIGESTS if (kept / name).is_file()}
    if not _wrong(files):
        return files
    files = _fetched()
    try:
        kept.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_atomically(kept / name, content)
    except (OSError, UserError):
        pass  # without space or permission, nothing is kept
    return files


def _given(path: Path) -> Files:
    """Those of a folder, installed by npm or unpacked, or of an archive that `npm pack` wrote."""
    if not path.exists():
        raise UserError(f"{path} does not exist.", f"Give a folder or a .tgz file of {PACKAGE}.")
    if path.is_file():
        return _checked(_unpacked(path), str(path))
    folders = [path, path / "dist", path / "package" / "dist", path / "node_modules" / "onnxruntime-web" / "dist"]
    found = {name: next((f / name for f in folders if (f / name).is_file()), None) for name in DIGESTS}
    return _checked({name: file.read_bytes() for name, file in found.items() if file is not None}, str(path))


def _unpacked(path: Path) -> Files:
    """The files of an archive; nothing else of it is read."""
    found: Files = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = member.name.removeprefix("package/dist/")
                if name in DIGESTS and member.isfile() and member.size <= MOST_BYTES:
                    content = archive.extractfile(member)
                    found[name] = b"" if content is None else content.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise UserError(f"{path} is not a readable archive: {error}.", f"Write it again: npm pack {PACKAGE}") from None
    return found


def _fetched() -> Files:
    """Those of the package, by npm: with the registry, the proxy and the certificates that it is set up for."""
    npm = shutil.which("npm")
    if npm is None:
        raise UserError(f"The page needs {PACKAGE}, and npm, which fetches it, is not installed.", f"Run {GIVE}")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", PACKAGE, "--silent", "--pack-destination", folder]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
            reason = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
        except subprocess.TimeoutExpired:
            done, reason = None, [f"it took more than {SECONDS} seconds"]
        archives = list(Path(folder).glob("*.tgz"))
        if done is None or done.returncode != 0 or len(archives) != 1:
            raise UserError(
                f"npm could not fetch {PACKAGE}: {reason[0].strip()}.",
                f"The network or npm's settings may be in the way. Run {GIVE}",
            )
        return _checked(_unpacked(archives[0]), f"npm's {PACKAGE}")


def _wrong(files: Files) -> str | None:
    """The name of a file that is missing or has another content."""
    for name, digest in DIGESTS.items():
        if name not in files or hashlib.sha256(files[name]).hexdigest() != digest:
            return name
    return None


def _checked(files: Files, place: str) -> Files:
    wrong = _wrong(files)
    if wrong is None:
        return files
    if wrong not in files:
        raise UserError(f"{place} has no {wrong}.", f"Give a folder or a .tgz file of {PACKAGE}.")
    raise UserError(f"{wrong} of {place} is not that of {PACKAGE}: its SHA-256 is another one.", f"Run {GIVE}")
