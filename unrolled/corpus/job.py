"""A run over large files: inputs are read one after the other, and their answers written in the same order."""

from __future__ import annotations

import itertools
import secrets
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from unrolled.corpus.crew import Alone, Crew, WorkerEnded, Workers
from unrolled.corpus.identity import identity_of
from unrolled.corpus.loading import with_text_scorer
from unrolled.corpus.part_file import GO_ON, Certain, PartFile
from unrolled.corpus.progress import CorpusProgress
from unrolled.corpus.work import Answered, CorpusPart, CorpusWork, Notes, Office, collected_notes
from unrolled.errors import UserError, note
from unrolled.tasks.answer_lines import NotAllRead
from unrolled.tasks.runner import Input, Request
from unrolled.text.files import new_file

PART = 256  # inputs of a part; fewer where the model's runner takes fewer
MOST_ERRORS = 20  # of inputs that are shown; all of them stand in the records


@dataclass(frozen=True)
class CorpusRun:
    """A request, where its answers go, and the processes that make them."""

    work: CorpusWork
    request: Request
    out: Path | None = None  # None: standard output
    workers: int = 1
    force: bool = False
    quiet: bool = False


def run_corpus(corpus: CorpusRun, model: Any = None) -> None:
    """Answer the inputs of a request, in order; `model` is that of the work where it is loaded already.

    With `out` and files a run that was stopped at any instant goes on, and the file gets the bytes of an undisturbed
    run.
    """
    check_out(corpus.out)
    if corpus.workers < 1:
        raise UserError(f"workers={corpus.workers} is not a number of processes.", "Use 1 or more.")
    if corpus.work.options.get("picture") is not None:
        raise UserError("A picture shows one input.", "Leave it out, or leave --out and --workers out.")
    office = Office(corpus.work, model)
    whole = office.runner.whole(corpus.request, corpus.work.options)
    if whole is not None and corpus.workers > 1:
        raise whole
    if whole is not None or not corpus.request.files or corpus.out is None:
        with _sink(corpus) as write:
            failed = (_as_a_whole if whole is not None else _once)(corpus, office, write)
        if failed is not None:
            raise failed
    else:
        _resumable(corpus, office, corpus.out)


def check_out(out: Path | None) -> None:
    """Refuse names that a file of answers cannot have."""
    if out is not None and out.suffix in (".gz", ".parquet", ".xlsx"):
        raise UserError(f"--out {out}: answers are written as plain text.", "Give a name in .jsonl, .csv or .txt.")
    if out is not None and not out.parent.is_dir():
        raise UserError(f"The folder {out.parent} does not exist.", "Make it, or choose another place for --out.")


@contextmanager
def _sink(corpus: CorpusRun) -> Iterator[Callable[[str], object]]:
    """The place of answers that cannot be gone on with: standard output, or a file that is there when all of it is."""
    if corpus.out is None:
        yield sys.stdout.write
        sys.stdout.flush()
        return
    if not corpus.request.files and corpus.request.texts is None:
        note("Standard input cannot be read again: if this run is stopped, it begins anew. From a file it goes on.")
    with new_file(corpus.out, force=corpus.force) as beside, beside.open("w", newline="") as file:
        yield file.write


def _as_a_whole(corpus: CorpusRun, office: Office, write: Callable[[str], object]) -> UserError | None:
    """A run in one process, as without --out; the error of inputs that could not be read."""
    options = with_text_scorer(corpus.work.options, corpus.work.device)
    try:
        for piece in office.runner.run(corpus.request, **options):
            write(piece)
    except NotAllRead as error:
        return _not_all_read(corpus, error.failed, error.total)
    return None


def _not_all_read(corpus: CorpusRun, failed: int, total: int) -> UserError | None:
    """The error of so many inputs that could not be read, if there are any."""
    place = "above" if corpus.out is None else f"in {corpus.out}"
    return NotAllRead(failed, total, place) if failed else None


def _once(corpus: CorpusRun, office: Office, write: Callable[[str], object]) -> UserError | None:
    """A run that begins and ends in this call; the error of inputs that could not be read."""
    corpus, office = _seeded(corpus, office, None)
    certain, notes = Certain(), Notes({})
    if office.header:
        write(office.header)
    progress = CorpusProgress(None, quiet=corpus.quiet or corpus.out is None)
    for answered in _answers(corpus, office, certain, corpus.request):
        write(answered.text)
        certain = _after(certain, answered, notes)
        progress.update(certain.inputs)
    progress.end()
    _tell(office, certain, notes)
    return _not_all_read(corpus, certain.failed, certain.inputs)


def _resumable(corpus: CorpusRun, office: Office, out: Path) -> None:
    """A run that records what is done, and goes on from there."""
    request = replace(corpus.request, checked=True)
    identity = identity_of(corpus.work, request, office)
    part = PartFile.opened(out, identity, force=corpus.force)
    try:
        corpus, office = _seeded(corpus, office, part)
        if not part.total:
            total = sum(1 for _ in office.runner.read(request))
            part.append(office.header, Certain())
            part.counted(total, corpus.work.options.get("seed"))
        elif not part.certain.done:
            note(f"{part.folder}: goes on after {part.certain.inputs:,} of {part.total:,} answers.")
        progress = CorpusProgress(part.total, corpus.quiet)
        notes = Notes(part.certain.notes)
        try:
            if part.certain.inputs < part.total:
                for answered in _answers(corpus, office, part.certain, request):
                    part.append(answered.text, _after(part.certain, answered, notes))
                    progress.update(part.certain.inputs)
        except WorkerEnded as error:
            raise UserError(error.problem, f"{error.fix} {GO_ON}") from None
        except KeyboardInterrupt:
            note(f"Stopped after {part.certain.inputs:,} of {part.total:,} answers. {GO_ON}")
            raise
        finally:
            progress.end()
            if not part.certain.done:
                part.record()
        part.finish()
    finally:
        part.close()
    _tell(office, part.certain, notes)
    if (failed := _not_all_read(corpus, part.certain.failed, part.total)) is not None:
        raise failed


def _seeded(corpus: CorpusRun, office: Office, part: PartFile | None) -> tuple[CorpusRun, Office]:
    """The same with a seed, if answers are drawn and none was given: that of the stopped run, or a new one."""
    work = corpus.work
    if not office.runner.draws(work.options) or work.options.get("seed") is not None:
        return corpus, office
    seed = part.seed if part is not None and part.seed is not None else secrets.randbelow(1 << 31)
    note(f"Texts are drawn with the seed {seed}. To draw them again: --seed {seed}.")
    work = replace(work, options={**work.options, "seed": seed})
    return replace(corpus, work=work), Office(work, office.model)


def _answers(corpus: CorpusRun, office: Office, certain: Certain, request: Request) -> Iterator[Answered]:
    """The answers to what is not certain yet, in the order of the inputs."""
    with ExitStack() as stack:
        workers: Workers = Alone(office)
        if corpus.workers > 1:
            work = corpus.work
            if not work.model:
                folder = stack.enter_context(TemporaryDirectory())
                work = replace(work, model=f"{folder}/model.safetensors")
                office.model.save(work.model)
            workers = stack.enter_context(Crew(work, corpus.workers))
        parts = _parts(office, request, certain.inputs)
        in_turn = office.work.format == "csv" and not office.header  # the first answer names the columns
        yield from _in_order(workers, parts, certain.columns, in_turn=in_turn)


def _parts(office: Office, request: Request, done: int) -> Iterator[tuple[int, list[Input]]]:
    """The inputs after those that are done, a part at a time; each with the number of its first."""
    runner = office.runner
    size = runner.at_once if runner.reads_files else min(PART, runner.at_once)
    inputs = runner.read(request)
    with collected_notes() if request.checked else nullcontext():  # they were told when the files were checked
        next(itertools.islice(inputs, done, done), None)
    while True:
        with collected_notes() if request.checked else nullcontext():
            some = list(itertools.islice(inputs, size))
        if not some:
            return
        yield done, some
        done += len(some)


def _in_order(
    workers: Workers, parts: Iterator[tuple[int, list[Input]]], columns: Sequence[str], *, in_turn: bool
) -> Iterator[Answered]:
    """The answers to parts in their order, while some of the next are computed.

    in_turn: until the columns of a csv are known, a part begins when the one before it has its answers.
    """
    waiting: deque[Future[Answered]] = deque()
    for first, inputs in parts:
        waiting.append(workers.submit(CorpusPart(first, inputs, columns)))
        if in_turn and not columns:
            answered = waiting.popleft().result()
            columns = answered.columns
            yield answered
        while waiting and (len(waiting) >= workers.at_once or waiting[0].done()):
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _after(certain: Certain, answered: Answered, notes: Notes) -> Certain:
    """The state after these answers too; the errors of inputs are told at once."""
    failed = certain.failed + answered.failed
    for text in answered.errors[: max(0, MOST_ERRORS - certain.failed)]:
        note(text)
    if certain.failed < MOST_ERRORS <= failed:
        note("Errors of further inputs are not shown here: they stand in the place of the answers.")
    notes.add(answered.notes)
    return Certain(
        inputs=certain.inputs + answered.inputs,
        failed=failed,
        columns=list(answered.columns),
        counts=dict(Counter(certain.counts) + Counter(answered.counts)),
        notes=dict(notes.sums),
    )


def _tell(office: Office, certain: Certain, notes: Notes) -> None:
    """The notes about all answers."""
    office.runner.remark(certain.counts)
    for text in notes.texts():
        note(text)
