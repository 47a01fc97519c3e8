"""A model file from the hub. Only one .safetensors file is downloaded, never code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from unrolled.errors import UserError, note
from unrolled.hub.address import FILE, Address
from unrolled.hub.client import NoAnswer, hub_api, hub_client, hub_errors
from unrolled.model_file import read_about

PICKLES = (".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth")
SHOWN = 5  # names of files in a message


def fetch(address: Address) -> Path:
    """The model file at an address, in the client's cache; downloaded if it is not there, or is a new one.

    Without an answer from the hub, the cached file of this revision.
    """
    client = hub_client()
    try:
        with hub_errors(str(address)):
            info = hub_api().model_info(address.repo, revision=address.revision, files_metadata=True)
    except NoAnswer as error:
        return _cached(address, error)
    if info.library_name not in (None, "unrolled"):
        raise UserError(f"{address} is a model of {info.library_name}.", "Give one that unrolled wrote.")
    sizes = {one.rfilename: one.size for one in info.siblings or ()}
    name = choose(list(sizes), address)
    with hub_errors(str(address)):
        path = Path(client.hf_hub_download(address.repo, name, revision=address.revision, library_name="unrolled"))
    expected, found = sizes[name], path.stat().st_size
    if expected not in (None, found) and path.parent.name == info.sha:
        raise UserError(f"{address} is damaged: {name} has {found:,} bytes, and {expected:,} on the hub.", _again(path))
    return _checked(address, path)


def choose(names: Sequence[str], address: Address) -> str:
    """The model among the files of a repository."""
    models = [name for name in names if name.endswith(".safetensors")]
    if address.file is not None:
        if address.file not in models:
            raise UserError(f"{address} does not exist.", f"Its models: {_some(models)}.")
        return address.file
    top = [name for name in models if "/" not in name]
    if FILE in top or len(top) == 1:
        return FILE if FILE in top else top[0]
    if top:
        raise UserError(
            f"{address} holds several models: {_some(top)}.", f"Name one, such as hub:{address.repo}/{top[0]}."
        )
    pickles = [name for name in names if PurePosixPath(name).suffix in PICKLES]
    if pickles:
        raise UserError(
            f"{address} holds no .safetensors file, but {_some(pickles)}: a pickle, which can run any code when it is "
            "loaded. It is not downloaded.",
            "Ask its owner for a model that unrolled wrote.",
        )
    raise UserError(f"{address} holds no model of unrolled, but {_some(names)}.", "Give one that unrolled wrote.")


def _cached(address: Address, error: NoAnswer) -> Path:
    """The file of an earlier download."""
    client = hub_client()
    try:
        folder = Path(
            client.snapshot_download(
                address.repo, revision=address.revision, allow_patterns=["*.safetensors"], local_files_only=True
            )
        )
    except (OSError, ValueError):  # nothing of it is in the cache
        raise NoAnswer(f"{error.problem} It was not downloaded before.", error.fix) from None
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.safetensors"))]
    path = folder / choose(names, address)
    if not client.constants.HF_HUB_OFFLINE:
        note(f"{error.problem} The copy of {address} that was downloaded before is used.")
    return _checked(address, path)


def _checked(address: Address, path: Path) -> Path:
    """The file, if it is a model of ours; the weights are checked when they are loaded."""
    try:
        read_about(path)
    except UserError as error:
        raise UserError(f"{address}: {error.problem}", f"{error.fix} {_again(path)}") from None
    return path


def _again(path: Path) -> str:
    return f"To download it again, delete {path.resolve()}."


def _some(names: Sequence[str]) -> str:
    if not names:
        return "no files"
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
