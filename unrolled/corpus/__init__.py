"""Answers to large files: in parts, by several processes, and from where a stopped run had come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unrolled.lazy import lazy_names

if TYPE_CHECKING:
    from unrolled.corpus.job import CorpusRun, run_corpus
    from unrolled.corpus.work import CorpusWork

__all__ = ["CorpusRun", "CorpusWork", "run_corpus"]

__getattr__ = lazy_names(
    __name__,
    {"unrolled.corpus.job": "CorpusRun run_corpus", "unrolled.corpus.work": "CorpusWork"},
)
