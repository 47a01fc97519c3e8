"""Both engines of n-gram models, where both are there."""

from __future__ import annotations

import pytest

from unrolled.kernels.native_module import NATIVE

needs_native = pytest.mark.skipif(NATIVE is None, reason="the C++ core is not built")
ENGINES = [pytest.param("native", marks=needs_native), "reference"]
