"""Error rates of several searches as a table for a person to read."""

from __future__ import annotations

from collections.abc import Mapping

COLUMNS = {
    "cer": "CER",
    "wer": "WER",
    "phone_error_rate": "phone error rate",
    "label_error_rate": "label error rate",
    "exact_match": "exact match",
}


def error_table(searches: Mapping[str, Mapping[str, float]]) -> str:
    """A line for each search.

    >>> print(error_table({"greedy": {"cer": 0.25, "exact_match": 0.5}}))
    search     CER  exact match
    greedy  0.2500       0.5000
    """
    width = max(len(name) for name in [*searches, "search"])
    columns = {key: COLUMNS[key] for key in next(iter(searches.values()))}
    lines = [f"{'search':<{width}}" + "".join(f"  {title:>6}" for title in columns.values())]
    for name, row in searches.items():
        lines.append(
            f"{name:<{width}}" + "".join(f"  {row[key]:{max(6, len(title))}.4f}" for key, title in columns.items())
        )
    return "\n".join(lines)
