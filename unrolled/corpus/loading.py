"""Models by their paths: model files, run folders, folders of exported models; and models that rescore."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unrolled.errors import UserError
from unrolled.exported import check_there, is_exported
from unrolled.hub import is_address
from unrolled.tasks.answer_lines import Format

if TYPE_CHECKING:
    from unrolled.tasks import Task


def format_of(out: Path | None) -> Format:
    """The format of a file of answers by its name.

    >>> format_of(Path("answers.jsonl")), format_of(Path("answers.txt"))
    ('jsonl', 'text')
    """
    named: dict[str, Format] = {".jsonl": "jsonl", ".csv": "csv"}
    return named.get(out.suffix, "text") if out is not None else "text"


def load_either(path: str, task: Task | None, device: str, *, mapped: bool = False) -> Any:
    """The model of a file or run folder; of an exported model's folder, without torch.

    `mapped`: the weights stay in the file's memory map, which processes share.
    """
    if not is_exported(path):
        if not is_address(path):
            check_there(path)  # before torch is asked for
        from unrolled.jobs.load import load_model

        return load_model(path, task=task, device=device, mapped=mapped)
    if task is not None or device != "cpu":
        flag = "--task" if task is not None else f"--device {device}"
        raise UserError(f"{flag} is not for an exported model: it runs on the CPU, with its own task.", "Leave it out.")
    from unrolled import runtime

    return runtime.load(path)


def with_text_scorer(options: Mapping[str, Any], device: str) -> dict[str, Any]:
    """The options with the model that `rescore` names by its path."""
    path = options.get("rescore")
    if not isinstance(path, str):
        return dict(options)
    if is_exported(path):
        from unrolled import runtime

        model = runtime.load(path)
        model.log_prob([""])  # a model of another task says so
        return {**options, "rescore": model}
    if path.endswith((".arpa", ".arpa.gz")):
        from unrolled.search import NGram

        return {**options, "rescore": NGram.load(path)}
    from unrolled.jobs.load import text_scorer

    return {**options, "rescore": text_scorer(path, device=device)}
