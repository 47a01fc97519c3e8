"""A few kills in every run of the tests; `make kill N=1000` does more (see `kill.py`)."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path


def test_killed_runs_end_with_the_same_bytes(tmp_path: Path) -> None:
    out = tmp_path / "kill.json"
    case = random.choice(["generate", "classify", "tag", "forecast"])
    words = ["-m", "tests.faults.kill", "--kills", "3", "--cases", case, "--out", str(out)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert found["kills"] == 3
    assert found["differ"] == 0
