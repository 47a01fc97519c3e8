"""The verb `run` as a function. An exported model's folder needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unrolled.corpus.job import CorpusRun, run_corpus
from unrolled.corpus.loading import format_of, load_either
from unrolled.corpus.work import CorpusWork, place_of
from unrolled.errors import UserError, unknown_name
from unrolled.tasks.answer_lines import FORMATS, Format
from unrolled.tasks.runner import Request

if TYPE_CHECKING:
    from unrolled.model import Model


def run(
    model: str | Path | Model,
    files: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    workers: int = 1,
    format: Format | None = None,
    keep: Sequence[str] = (),
    force: bool = False,
    set: Mapping[str, Any] | Sequence[str] | None = None,
    device: str = "cpu",
    quiet: bool = False,
    **options: Any,
) -> None:
    """Answer all inputs of files, in order, to a new file: `unrolled run MODEL FILES --out OUT --workers N`.

    Files may be larger than memory. Stopped at any instant, even by SIGKILL, the same call goes on, and the file gets
    the bytes of an undisturbed run. `workers` are processes that share the weights. `format` is text, jsonl or csv, by
    default as `out` is named; `keep` names columns to copy, `set` changes keys about reading the files. `force`
    replaces a file that exists. The other options are those of `model.predict`.
    """
    given, place = [files] if isinstance(files, (str, Path)) else list(files), Path(out)
    path = str(model) if isinstance(model, (str, Path)) else ""
    if not path and not hasattr(model, "fingerprint"):
        raise UserError(f"The model is {type(model).__name__}.", "Give its path, or a Model.")
    loaded: Any = load_either(path, None, device, mapped=True) if path else model
    loaded.task.options.check("run", options)
    form = format or format_of(place)
    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS)
    own = None if path else place_of(loaded.task)
    work = CorpusWork(path, form, options, set, str(loaded.device), own)
    request = Request(files=[str(file) for file in given], format=form, keep=keep)
    run_corpus(CorpusRun(work, request, place, workers, force, quiet), loaded)
