"""The models, the one input and its changes that a user wants to inspect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unrolled.errors import UserError, note
from unrolled.model import Model
from unrolled.see import ModelTrace
from unrolled.see.figures.gradients import compare_gradients
from unrolled.see.figures.kinds import make_folder, save_all
from unrolled.tasks.runner import Request
from unrolled.tasks.tracer import Example


@dataclass
class Asked:
    """The models by name, the first being the main one, and the input."""

    models: dict[str, Model]
    text: str | None = None
    file: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    example: int | None = None  # index into the first model's validation data
    opens: Mapping[str, str] = field(default_factory=dict)  # the page's initial layer, step, unit
    given: Any = None  # the input itself, in the form that the task takes

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.text, self.file, self.example)) > 1:
            raise UserError("There is more than one input.", "Give one: a text, --file FILE or --example N.")
        self._found: Any = self.given
        self._truth: Any = None
        if self.example is not None:
            found = self._first.tracer.example(self._first.task.read(self._first.config).valid, self.example)
            self._found, self._truth = found if isinstance(found, Example) else (found, None)
            if isinstance(self._found, str):  # a text can be edited on the page
                self.text = self._found

    @property
    def _first(self) -> Model:
        return next(iter(self.models.values()))

    @property
    def named(self) -> str | None:
        """The name of an input that is not a text: a file name or an example number."""
        if self.file is not None:
            return Path(self.file).name
        return None if self.example is None else f"example {self.example}"

    @property
    def names(self) -> dict[str, str]:
        """Unique names of the models for figures: their folder names, or full paths if these are not unique."""
        short = {name: Path(name).stem if Path(name).is_file() else Path(name).name for name in self.models}
        if len(set(short.values())) < len(short):
            return {name: name for name in self.models}
        return short

    def input_for(self, model: Model) -> Any:
        """The input in the form that a model's task takes."""
        if self._found is not None:
            return self._found
        if self.text is None and self.file is None:
            raise UserError(
                "There is no input.", "Give a text after the model, --file FILE, or --example N of its data."
            )
        texts = None if self.text is None else [self.text]
        return model.tracer.input(Request(texts=texts, files=() if self.file is None else (self.file,)))

    def truth(self, model: Model) -> dict[str, Any]:
        """The correct answer of the example as an option of a trace, if it is known."""
        same = model.task.name == self._first.task.name
        takes = any(option.name == "truth" for option in model.tracer.options)
        return {"truth": self._truth} if self._truth is not None and same and takes else {}

    def trace(self, name: str | None = None) -> ModelTrace:
        """One model's trace of the input; the first model's if none is named."""
        model = self.models[name] if name is not None else self._first
        return model.trace(self.input_for(model), **{**self.truth(model), **self.options})

    def draw(
        self, folder: Path, format: str = "png", width: str | float | None = None, only: Sequence[str] | None = None
    ) -> list[Path]:
        """Save all figures, or those in `only`; several models get a folder each.

        Gradients of several models are also drawn side by side.
        """
        traces = {self.names[name]: self.trace(name) for name in self.models}
        for name, trace in traces.items():
            issue_notes(trace.notes, name if len(traces) > 1 else "")
        if len(traces) == 1:
            return save_all(next(iter(traces.values())), folder, format, width, only)
        made = []
        for name, trace in traces.items():
            chosen = only if only is None else [kind for kind in only if trace.why_not(kind) is None]
            if chosen is None or chosen:
                made += save_all(trace, folder / name, format, width, chosen)
        if only is not None and not made:
            save_all(next(iter(traces.values())), folder, format, width, only)  # raises the reason
        make_folder(folder)
        if only is None or "gradients" in only:
            place = folder / f"gradients.{format}"
            compare_gradients(traces, width=width).savefig(place)
            made.append(place)
        return made


def issue_notes(notes: Sequence[str], model: str = "") -> None:
    """Issue the notes of a trace, with the model's name if there are several."""
    for text in notes:
        note(f"{model}: {text}" if model else text)
