"""The engines that run on the CPU, where most tests are."""

from __future__ import annotations

from unrolled.kernels import ENGINES

ON_CPU = [name for name, engine in ENGINES.items() if getattr(engine, "DEVICE", "cpu") == "cpu"]
