"""`unrolled run` of a classifier: texts or frames in, labels or numbers out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from unrolled.data.readers.labelled import FASTTEXT, is_fasttext, read_frames, without_labels
from unrolled.data.readers.tables.read_table import Row, is_table, read_table, read_text_column
from unrolled.data.readers.tables.standard_input import piped_texts
from unrolled.data.readers.text_lines import TextLines
from unrolled.errors import UserError, note
from unrolled.tasks.classify.predict import Classified, config_of
from unrolled.tasks.classify.regression import PredictedNumber
from unrolled.tasks.runner import Input, Request, Runner
from unrolled.text.globs import files_of, is_several


class ClassifyRunner(Runner):
    """Labels texts, lines, tables and frames."""

    keeps: ClassVar[bool] = True

    def counts(self, inputs: Sequence[Input]) -> dict[str, int]:
        return {"empty": sum(isinstance(one.value, str) and not one.value.strip() for one in inputs)}

    def remark(self, counts: Mapping[str, int]) -> None:
        if empty := counts.get("empty"):
            note(f"{empty} inputs are empty: their answers reflect only how common each label is.")

    def inputs(self, request: Request) -> Iterator[Any]:
        if not self.model.assets.reader.frames:
            yield from super().inputs(request)
            return
        if not request.files:
            raise UserError("This model reads frames, not text.", "Give a .npz file with an array `frames`.")
        for file in request.files:
            yield from read_frames(file)

    def rows_given(self, path: str) -> list[Any]:
        """The texts of a table in memory, or its frames."""
        if not self.model.assets.reader.frames:
            return list(super().inputs(Request(files=[path])))
        return [row.values[0] for row in read_table(path, [self._column], ["text"])]

    def rows(self, file: str, keep: Sequence[str] = ()) -> Iterator[Row]:
        """The texts of a table like those of training, whose labels are not read; else the lines."""
        if is_several(file):
            for one in files_of(file):
                yield from self.rows(str(one), keep)
            return
        if is_fasttext(file) and not keep:
            for number, line in enumerate(TextLines(file), 1):
                yield Row((without_labels(line),), f"{file}:{number}")
            return
        labels, texts = set(self.model.assets.labels), set[str]()
        suspect = self._column is None and is_table(Path(file))
        for row in read_text_column(file, self._column, "text", 2, keep=keep, beside=["label"]):
            text = row.values[0].strip()
            # without a header, a column of labels may be taken for the texts
            suspect = suspect and text in labels and (bool(texts) or row.place == f"{file}:1")
            if suspect:
                texts.add(text)
            yield row
        if suspect:
            raise UserError(
                f"The texts of {file} are the labels themselves: {', '.join(sorted(texts)[:3])}.",
                "Say which column holds the texts: --set data.text_column=1",
            )

    def piped(self, lines: Iterable[str]) -> Iterator[str]:
        """Lines, or the texts of a table or of fastText's lines, whose labels are not read."""
        plain = (without_labels(line) if line.startswith(FASTTEXT) else line for line in lines)
        return piped_texts(plain, self._column, "text", "label")

    @property
    def _column(self) -> str | None:
        return config_of(self.model).data.text_column

    def record(self, one: Any, answer: Classified | PredictedNumber) -> dict[str, Any]:
        shown = one if isinstance(one, str) else f"{len(one)} frames"
        why = {} if answer.explanation is None else {"explanation": answer.explanation.to_json()}
        if isinstance(answer, PredictedNumber):
            return {"input": shown, "value": answer.value, **why}
        several = {"labels": list(answer.labels)} if answer.several else {}
        label = None if answer.abstains else answer.label
        return {"input": shown, "label": label, **several, "probabilities": answer.probabilities, **why}

    def line(self, one: Any, answer: Classified | PredictedNumber) -> str:
        why = "" if answer.explanation is None else f"{answer.explanation}\n"
        return f"{answer}\n{why}"

    def report(self, scores: Mapping[str, Any]) -> str:
        from unrolled.tasks.classify.scores import report

        return report(scores)
