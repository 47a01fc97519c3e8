"""`unrolled run` in a process where torch cannot be imported."""

from __future__ import annotations

import subprocess
import sys

from tests.runtime.folders import STORED, folder_of

BLOCKED = "import sys; sys.modules['torch'] = None; from unrolled.cli.app import main; main()"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCKED, "run", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_an_exported_model_needs_no_torch() -> None:
    done = run(str(folder_of("classify")), "--text", "one fine two three")
    assert (done.stdout, done.stderr, done.returncode) == ("good\n", "", 0)


def test_a_model_file_says_that_it_needs_torch() -> None:
    done = run(str(STORED / "classify.safetensors"), "--text", "fine")
    assert done.returncode == 2
    assert done.stderr == (
        "unrolled: This needs torch, which is not installed. Install it: pip install torch. "
        "Without it, `unrolled run` and `unrolled eval` take the folder of an exported model.\n"
    )
