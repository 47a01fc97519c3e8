"""The clock of all timings; peers in environments of their own import it too."""

from __future__ import annotations

import time

CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
