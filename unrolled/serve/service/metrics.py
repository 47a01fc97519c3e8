"""Numbers about the service in Prometheus's text format. All are changed in the event loop's thread."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
Labels = tuple[str, ...]


class Metric:
    """A number for each combination of label values: a counter, or a gauge that is set or read when asked for."""

    def __init__(self, kind: str, name: str, help: str, labels: Sequence[str] = ()) -> None:
        self.kind, self.name, self.help, self.labels = kind, name, help, tuple(labels)
        self.values: dict[Labels, float] = {}
        self.read: Callable[[], Mapping[Labels, float]] | None = None

    def add(self, *labels: str, by: float = 1) -> None:
        self.values[labels] = self.values.get(labels, 0.0) + by

    def set(self, value: float, *labels: str) -> None:
        self.values[labels] = value

    def lines(self) -> list[str]:
        values = self.values if self.read is None else self.read()
        return [f"{self.name}{shown(self.labels, labels)} {number(value)}" for labels, value in values.items()]


class Histogram:
    """Counts of values up to each bound, for each combination of label values."""

    kind = "histogram"

    def __init__(self, name: str, help: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self.name, self.help, self.labels, self.bounds = name, help, tuple(labels), tuple(bounds)
        self.counts: dict[Labels, list[int]] = {}
        self.sums: dict[Labels, float] = {}

    def observe(self, value: float, *labels: str) -> None:
        counts = self.counts.get(labels)
        if counts is None:
            counts = self.counts[labels] = [0] * (len(self.bounds) + 1)
            self.sums[labels] = 0.0
        counts[bisect_left(self.bounds, value)] += 1
        self.sums[labels] += value

    def lines(self) -> list[str]:
        found = []
        for labels, counts in self.counts.items():
            total = 0
            for bound, count in zip((*map(number, self.bounds), "+Inf"), counts, strict=True):
                total += count
                found.append(f"{self.name}_bucket{shown((*self.labels, 'le'), (*labels, bound))} {total}")
            found.append(f"{self.name}_sum{shown(self.labels, labels)} {number(self.sums[labels])}")
            found.append(f"{self.name}_count{shown(self.labels, labels)} {total}")
        return found


class Metrics:
    """All numbers of a service. A part makes its own with `counter`, `gauge` and `histogram`."""

    def __init__(self) -> None:
        self._all: dict[str, Metric | Histogram] = {}
        self.requests = self.counter("unrolled_requests_total", "Requests answered.", ("route", "status"))
        self.seconds = self.histogram("unrolled_request_seconds", "Time to answer.", ("route",), SECONDS)
        self.refused = self.counter("unrolled_refused_total", "Requests that a guard refused.", ("code",))
        self.gauge("unrolled_resident_bytes", "Memory of the process.").read = lambda: {(): resident()}

    def counter(self, name: str, help: str, labels: Sequence[str] = ()) -> Metric:
        return self._kept(Metric("counter", name, help, labels))

    def gauge(self, name: str, help: str, labels: Sequence[str] = ()) -> Metric:
        return self._kept(Metric("gauge", name, help, labels))

    def histogram(self, name: str, help: str, labels: Sequence[str], bounds: Sequence[float]) -> Histogram:
        made = Histogram(name, help, labels, bounds)
        self._all[name] = made
        return made

    def _kept(self, made: Metric) -> Metric:
        self._all[made.name] = made
        return made

    def text(self) -> str:
        """Everything in Prometheus's text format."""
        parts: list[str] = []
        for metric in self._all.values():
            parts += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}", *metric.lines()]
        return "\n".join(parts) + "\n"


def shown(names: Labels, values: Labels) -> str:
    r"""Labels as the format writes them.

    >>> shown(("model", "verb"), ('a"b', "predict"))
    '{model="a\\"b",verb="predict"}'
    """
    if not names:
        return ""
    escaped = (value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for value in values)
    return "{" + ",".join(f'{name}="{value}"' for name, value in zip(names, escaped, strict=True)) + "}"


def number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def resident() -> float:
    """Bytes of memory of this process; 0 where the system does not say."""
    try:
        return float(Path("/proc/self/statm").read_text().split()[1]) * 4096
    except (OSError, IndexError, ValueError):
        return 0.0
