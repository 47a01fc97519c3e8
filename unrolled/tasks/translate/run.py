"""`unrolled run` of a translator: sources in, translations out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from unrolled.data.readers.tables.read_table import Row, read_text_column
from unrolled.data.readers.tables.standard_input import piped_texts
from unrolled.errors import UserError, note
from unrolled.tasks.runner import Input, plain_scores, table_of
from unrolled.tasks.shared.answers import WritingRunner, rounded
from unrolled.tasks.translate.assets import TranslateAssets
from unrolled.tasks.translate.predict import Translation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class TranslateRunner(WritingRunner):
    """Translates texts, lines and the sources of tables."""

    keeps: ClassVar[bool] = True
    needs_attention = "model.decoder.attention=luong"

    def counts(self, inputs: Sequence[Input]) -> dict[str, int]:
        """Numbers of what is unlike the sources of training."""
        assets: TranslateAssets = self.model.assets
        ids = [assets.source.ids(one.value) for one in inputs]
        return {
            "unknown": sum(map(assets.source.count_unknown, ids)),
            "long": sum(len(one) + 1 > assets.longest_source for one in ids),
        }

    def remark(self, counts: Mapping[str, int]) -> None:
        if unknown := counts.get("unknown"):
            note(f"Tokens never seen in training are read as <unk>. There are {unknown}.")
        if long := counts.get("long"):
            longest = f"longer than any in training ({self.model.assets.longest_source - 1} tokens)"
            note(f"Sources {longest} may be translated poorly. There are {long}.")

    def rows(self, file: str, keep: Sequence[str] = ()) -> Iterator[Row]:
        """The sources of a table like those of training, whose targets are not read; else the lines."""
        return read_text_column(file, self._column, "source", 1, keep=keep, beside=["target"])

    def piped(self, lines: Iterable[str]) -> Iterator[str]:
        """Lines, or the sources of a table. Only a line feed ends a line, so that answers stay beside their sources."""
        return piped_texts(lines, self._column, "source", "target")

    @property
    def _column(self) -> str | None:
        config: Any = self.model.config
        column: str | None = config.data.source_column
        return column

    def draw(self, one: str, answer: Translation, options: Mapping[str, Any]) -> Figure:
        """The attention of each target token to the source."""
        if answer.attention is None or not answer.target_tokens:
            raise UserError("There is no text to show.", "Give a source with at least one token.")
        from unrolled.see import attention_figure  # it needs torch

        return attention_figure(answer.source_tokens, answer.target_tokens, answer.attention)

    def record(self, one: str, answer: Translation) -> dict[str, Any]:
        return {"source": one, "source_tokens": answer.source_tokens, **self.ranked_record(answer)}

    def answer_record(self, answer: Translation) -> dict[str, Any]:
        return {
            "translation": answer.text,
            "score": answer.score,
            "log_prob": answer.log_prob,
            "ended": answer.ended,
            "target_tokens": answer.target_tokens,
            "attention": rounded(answer.attention),
            "alignment": answer.alignment,
            **self.words_record(answer),
        }

    def report(self, scores: Mapping[str, Any]) -> str:
        from unrolled.tasks.translate.scores import length_table

        return f"{table_of(plain_scores(scores))}\n\n{length_table(scores['by_length'])}"
