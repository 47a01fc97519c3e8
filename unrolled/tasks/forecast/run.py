"""`unrolled run` of a forecaster: rows in, forecasts out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from unrolled.errors import UserError
from unrolled.tasks.forecast.predict import check_forecast_options
from unrolled.tasks.forecast.rows import answers
from unrolled.tasks.forecast.stream import RowStream
from unrolled.tasks.runner import Request, Runner, plain_scores, table_of


class ForecastRunner(Runner):
    """Answers rows as they arrive."""

    keeps: ClassVar[bool] = True
    keeps_lines: ClassVar[bool] = True

    def run(self, request: Request, **options: Any) -> Iterator[str]:
        """A line for each row, immediately; with `steps` the continuation of each series."""
        check_forecast_options(options)
        return answers(self.model, request, keep=request.keep, **options)

    def whole(self, request: Request, options: Mapping[str, Any]) -> UserError:
        return UserError(
            "A forecast goes on from the rows before it: rows are answered one after the other, in one process.",
            "Leave --workers out. Files of several series may be answered by several commands.",
        )

    def report(self, scores: Mapping[str, Any]) -> str:
        rows = {name: " ".join(f"{k} {v:.4g}" for k, v in row.items()) for name, row in scores["columns"].items()}
        return table_of(plain_scores(scores)) + "\n\n" + table_of(rows)

    def stream(self, **options: Any) -> RowStream:
        return RowStream(self.model)
