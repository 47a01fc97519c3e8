"""Pictures with captions: a table of names and captions, and the files of the pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unrolled.data.readers.tables.read_table import Row, read_table
from unrolled.data.signals.pictures import LARGEST, Folder, Pictures, open_pictures, resized
from unrolled.data.signals.views import Shape, View
from unrolled.errors import UserError, note


@dataclass(frozen=True)
class Named:
    """The name of a picture, with its captions."""

    image: str | int
    captions: tuple[str, ...]
    place: str


@dataclass(frozen=True)
class Captioned:
    """A picture with its captions."""

    view: View
    captions: tuple[str, ...]
    name: str
    place: str = ""


def read_captions(
    path: str | Path, *, image_column: str | None = None, caption_column: str | None = None
) -> list[Named]:
    """The rows of a table: `image` and `captions`, a list; or image TAB caption, with one or more rows per picture."""
    rows = read_table(path, [image_column, caption_column], ["image", "captions"])
    found: dict[str | int, Named] = {}
    lists: dict[str | int, str] = {}  # the row with a picture's list of captions
    for row in rows:
        image, captions = _image(row), _captions(row)
        if image in found:
            if image in lists or isinstance(row.values[1], list):
                raise UserError(
                    f"{row.place} names the picture {image!r} again, after {found[image].place}.",
                    "Put all its captions into one row.",
                )
            captions = (*found[image].captions, *captions)
        if isinstance(row.values[1], list):
            lists[image] = row.place
        found[image] = Named(image, captions, found[image].place if image in found else row.place)
    return list(found.values())


def read_captioned(
    named: Sequence[Named],
    images: str | Path | None,
    table: str | Path,
    *,
    shape: Shape | None = None,
    size: int | None = None,
) -> list[Captioned]:
    """The pictures, from `images` or from the table's folder; each is resized as it is read.

    Without a `shape`, the first picture and `size` decide it.
    """
    source: Pictures = open_pictures(images) if images is not None else Folder(Path(table).parent)
    result = []
    for one in named:
        view = source.read(one.image, one.place)
        shape = shape or shape_for(view, size)
        result.append(Captioned(fitted_view(view, shape, one.place), one.captions, str(one.image), one.place))
    if source.animated:
        note(f"{source.animated} pictures are animated: the first frame is used.")
    return result


def fitted_view(view: View, shape: Shape, place: str) -> View:
    """The view with pixels resized to `shape`; empty views, and features of another shape, are errors."""
    if 0 in view.shape.sizes:
        raise UserError(f"{place} is empty: {view.shape}.", "Give a picture, or leave it out.")
    if view.shape.kind == "pixels" and shape.kind == "pixels":
        assert view.values is not None
        return View(resized(view.values, *shape.sizes[:2]))
    if view.shape != shape:
        raise UserError(
            f"{place} is {view.shape}, and the model reads {shape}.", "Compute its features like those in training."
        )
    return view


def shape_for(view: View, size: int | None) -> Shape:
    """The shape of all pictures: `size` on both sides, or the first one's up to 64; for features, the first one's."""
    shape = view.shape
    if shape.kind != "pixels":
        return shape
    height, width = (size, size) if size is not None else shape.sizes[:2]
    if size is None and max(height, width) > LARGEST:
        height = width = LARGEST
    return Shape("pixels", (height, width, 3))


def some_pictures(files: Sequence[str | Path]) -> Iterator[tuple[str, View]]:
    """Every picture of image files, folders, zips and npz files, with its name."""
    for name, view in pictures_or_errors(files):
        if isinstance(view, UserError):
            raise view
        yield name, view


def pictures_or_errors(files: Sequence[str | Path]) -> Iterator[tuple[str, View | UserError]]:
    """The same, with an error in the place of each unreadable file or picture."""
    reader = PictureReader()
    for one in places_of_pictures(files):
        yield one.name, reader.read(one)
    reader.tell()


@dataclass(frozen=True)
class PicturePlace:
    """A picture that is not read yet: `inside` a file or folder, or the error of a file that has none."""

    name: str
    file: str
    inside: str = ""
    error: UserError | None = None

    def __str__(self) -> str:
        return self.name


def places_of_pictures(files: Sequence[str | Path]) -> Iterator[PicturePlace]:
    """The place of every picture of files, folders and archives."""
    for file in files:
        try:
            names = _opened(file)[1]
        except UserError as error:
            yield PicturePlace(str(file), str(file), error=error)
            continue
        for name in names:
            yield PicturePlace(name if len(names) > 1 else str(file), str(file), name)


class PictureReader:
    """Reads pictures by their places; the file of the last one stays open."""

    def __init__(self) -> None:
        self._file, self._animated = "", dict[str, int]()
        self._source: Pictures | None = None

    def read(self, place: PicturePlace) -> View | UserError:
        """A picture, or the reason why it cannot be read."""
        if place.error is not None:
            return place.error
        try:
            if self._source is None or place.file != self._file:
                self._file, self._source = place.file, _opened(place.file)[0]
            source = self._source
            before = source.animated
            view = source.read(place.inside, place.file)
        except UserError as error:
            return error
        if more := source.animated - before:
            self._animated[place.file] = self._animated.get(place.file, 0) + more
        return view

    def tell(self) -> None:
        """Note how many pictures were animated."""
        for file, number in self._animated.items():
            note(f"{number} pictures of {file} are animated: the first frame is used.")
        self._animated = {}


def _opened(file: str | Path) -> tuple[Pictures, list[str]]:
    """A source of pictures, and the names of its pictures, at least one."""
    if not str(file):
        raise UserError("No picture is given.", "Give the path of one.")
    source = open_pictures(file, single=True)
    names = source.names()
    if not names:
        raise UserError(f"{file} holds no picture.", "Give image files, or a folder, zip or npz file of them.")
    return source, names


def _image(row: Row) -> str | int:
    image = row.values[0]
    if isinstance(image, bool) or not isinstance(image, (str, int)) or image == "":
        raise UserError(f"{row.place}: the image is {image!r}.", "Expected the name of a picture, or its row.")
    return image


def _captions(row: Row) -> tuple[str, ...]:
    given: Any = row.values[1]
    texts = given if isinstance(given, list) else [given]
    if not texts:
        raise UserError(f"{row.place} has no captions.", "Give at least one, or leave the row out.")
    for text in texts:
        if not isinstance(text, str):
            raise UserError(f"{row.place}: a caption is {type(text).__name__} {text!r}.", "Expected a text.")
        if not text.strip():
            raise UserError(f"{row.place} has an empty caption.", "Write one, or leave it out.")
    return tuple(texts)
