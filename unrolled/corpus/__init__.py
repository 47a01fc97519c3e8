"""Answers to large files: in parts, by several processes, and from where a stopped run had come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unrolled.lazy import lazy_names

if TYPE_CHECKING:
    from unrolled.corpus.job import Corpus, run_corpus
    from unrolled.corpus.work import Work

__all__ = ["Corpus", "Work", "run_corpus"]

__getattr__ = lazy_names(
    __name__,
    {"unrolled.corpus.job": "Corpus run_corpus", "unrolled.corpus.work": "Work"},
)
