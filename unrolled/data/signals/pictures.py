"""Pictures as pixels: image files, and folders, zips and npz files of them."""

from __future__ import annotations

import difflib
import io
import itertools
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from unrolled.data.signals.views import View, check_view, views_of_arrays
from unrolled.errors import UserError
from unrolled.text.files import is_file, reading

Pixels = NDArray[np.uint8]
IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
SIGNATURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"II*\0", b"MM\0*")  # of files that Pillow knows
AGAIN = "Get the file again, or leave it out."
MOST_PIXELS = 100_000_000  # of a picture: more would fill the memory
MOST_NAMES = 20_000  # names compared with a missing one
LARGEST = 64  # default pixels on a side


class Pictures(Protocol):
    """Pictures, or their features, by name."""

    animated: int  # pictures read so far with more than one frame

    def names(self) -> list[str]: ...

    def read(self, name: str | int, place: str) -> View:
        """A picture; `place` is the row that names it."""
        ...


def open_pictures(path: str | Path, *, single: bool = False) -> Pictures:
    """The pictures of a folder, a zip, or an npz file with `pictures`, `regions` or `vectors`.

    With `single` the path may be one image file.
    """
    path = Path(path)
    if path.is_dir():
        return Folder(path)
    several = "folder, zip or npz file of pictures"
    with reading(path, f"picture, or of a {several}" if single else several):
        path.open("rb").close()
    if path.suffix.lower() == ".npz":
        return Arrays(path)
    if path.suffix.lower() == ".zip":
        return Zip(path)
    if path.suffix.lower() in IMAGES:
        if not single:
            raise UserError(f"{path} is one picture.", "Give the folder, .zip or .npz that holds all of them.")
        return Folder(path.parent, [path.name])
    raise UserError(f"{path} holds no pictures: its name ends in {path.suffix!r}.", "Give a folder, a .zip or a .npz.")


class Folder:
    """Image files by their path inside a folder."""

    def __init__(self, folder: Path, names: Sequence[str] | None = None) -> None:
        self.folder, self.animated, self._names = folder, 0, names

    def names(self) -> list[str]:
        if self._names is not None:
            return list(self._names)
        found = (path for path in self.folder.rglob("*") if path.suffix.lower() in IMAGES)
        return sorted(str(path.relative_to(self.folder)) for path in found)

    def read(self, name: str | int, place: str) -> View:
        path = self.folder / str(name)
        if not is_file(path):
            found = (str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))
            raise picture_not_found(str(name), place, str(self.folder), list(itertools.islice(found, MOST_NAMES)))
        with reading(path, "picture"), path.open("rb") as file:
            pixels, frames = decode_picture(file, str(path))
        self.animated += frames > 1
        return View(pixels)


class Zip:
    """Image files in a zip, by their full name or, if it is unique, by its last part."""

    def __init__(self, path: Path) -> None:
        self.path, self.animated = path, 0
        try:
            with zipfile.ZipFile(path) as file:
                members = [name for name in file.namelist() if Path(name).suffix.lower() in IMAGES]
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise UserError(f"{path} is not a whole zip file: {error}.") from None
        self._members = [name for name in members if not name.startswith("__MACOSX/")]
        self._whole = set(self._members)
        self._by_last: dict[str, list[str]] = {}
        for name in self._members:
            self._by_last.setdefault(PurePosixPath(name).name, []).append(name)
        self._file = zipfile.ZipFile(path)

    def names(self) -> list[str]:
        return self._members

    def read(self, name: str | int, place: str) -> View:
        asked = str(name)
        found = [asked] if asked in self._whole else self._by_last.get(asked, [])
        if not found:
            raise picture_not_found(asked, place, str(self.path), [*self._members, *self._by_last])
        if len(found) > 1:
            raise UserError(
                f"{place}: {self.path} holds {asked!r} more than once: {', '.join(found[:3])}.", "Name one."
            )
        try:
            raw = self._file.read(found[0])
        except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError) as error:
            raise UserError(f"{self.path} is damaged at {found[0]}: {error}.", "Make it again.") from None
        pixels, frames = decode_picture(io.BytesIO(raw), f"{self.path}: {found[0]}")
        self.animated += frames > 1
        return View(pixels)


class Arrays:
    """Rows of an npz file, by number from 0 on, or by name with an array `names`."""

    def __init__(self, path: Path) -> None:
        self.path, self.animated = path, 0
        self.views, names = views_of_arrays(path)
        self._rows = {name: row for row, name in enumerate(names)}
        if len(self._rows) < len(names):
            twice = next(name for row, name in enumerate(names) if self._rows[name] != row)
            raise UserError(f"{path} names {twice!r} twice.", "Give every row of `names` a different name.")

    def names(self) -> list[str]:
        return list(self._rows) or [str(row) for row in range(len(self.views))]

    def read(self, name: str | int, place: str) -> View:
        if self._rows and str(name) in self._rows:
            row = self._rows[str(name)]
        elif not self._rows and str(name).isdecimal() and int(name) < len(self.views):
            row = int(name)
        elif self._rows:
            raise picture_not_found(str(name), place, str(self.path), list(self._rows))
        else:
            raise UserError(
                f"{place} names the picture {name!r}, and {self.path} has {len(self.views)} rows without names.",
                "Use numbers from 0 on, or add an array `names` to the file.",
            )
        return check_view(self.views[row], f"{self.path}: {self.names()[row]}")


def picture_not_found(name: str, place: str, where: str, names: Sequence[str]) -> UserError:
    """The error for a missing picture, with the nearest name."""
    stems = [PurePosixPath(one).stem for one in names]  # compare without folders and suffixes
    near = difflib.get_close_matches(PurePosixPath(name).stem, set(stems), n=1)
    alike = [one for one, stem in zip(names, stems, strict=True) if stem in near]
    nearest = difflib.get_close_matches(name, alike, n=1, cutoff=0.0)
    hint = f"Did you mean {nearest[0]!r}?" if nearest else "Give the folder, zip or npz file that holds it: --images."
    return UserError(f"{place} names the picture {name!r}, and {where} has none of that name.", hint)


def decode_picture(file: IO[bytes], place: str) -> tuple[Pixels, int]:
    """The pixels (H, W, 3) of an image file, and its number of frames; the first is used.

    Palettes and grey become RGB, transparency white, 16 bits 8; photos are rotated as their EXIF tag says.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            if image.width * image.height > MOST_PIXELS:
                raise Image.DecompressionBombError
            frames = int(getattr(image, "n_frames", 1))
            image.load()
            return pixels_of(ImageOps.exif_transpose(image), place), frames
    except Image.DecompressionBombError:
        raise UserError(f"{place} has too many pixels.", "Make it smaller: 10,000 × 10,000 is enough.") from None
    except UnidentifiedImageError:
        raise unreadable(_begins(file), place) from None
    except UserError:
        raise
    except Exception as error:  # Pillow's error depends on the format and the damage
        raise UserError(f"{place} is damaged: {str(error)[:200]}.", AGAIN) from None


def unreadable(begins: bytes, place: str) -> UserError:
    """The error for a file that Pillow does not know, by its first bytes: empty, damaged or of another format."""
    if not begins:
        return UserError(f"{place} is empty.", AGAIN)
    if begins.startswith(SIGNATURES) or (begins[:4], begins[8:12]) == (b"RIFF", b"WEBP"):
        return UserError(f"{place} is damaged or cut off.", AGAIN)
    return UserError(f"{place} is not a readable picture.", f"Expected one of {', '.join(IMAGES)}.")


def _begins(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(12)


def pixels_of(image: Any, place: str) -> Pixels:
    """The pixels (H, W, 3) of a PIL image."""
    from PIL import Image

    if image.mode.startswith("I"):  # 16 bits; Pillow's conversion would keep only the lowest 8
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise UserError(f"{place} has values from {values.min()} to {values.max()}.", "Expected 8 or 16 bits.")
        image = Image.fromarray((values // 257 if values.max() > 255 else values).astype(np.uint8))
    if image.mode == "F":
        raise UserError(f"{place} has fractions as pixels.", "Expected 8 or 16 bits.")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.array(image.convert("RGB"))


def resized(pixels: Pixels, height: int, width: int) -> Pixels:
    """The whole picture at another size, stretched if the proportions differ."""
    if pixels.shape[:2] == (height, width):
        return pixels
    from PIL import Image

    return np.array(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC))
