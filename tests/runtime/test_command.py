"""`unrolled run` in a process where torch cannot be imported."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys

from tests.runtime.folders import STORED, folder_of
from unrolled.kernels.native_module import NATIVE

BLOCKED = """
import importlib.util, sys
sys.modules["torch"] = None
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "torch" else find(name, *more)
from unrolled.cli.app import main
main()
"""


def unrolled(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCKED, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return unrolled("run", *arguments)


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


def test_a_path_where_nothing_is_needs_no_torch_to_be_told() -> None:
    done = run("nothere", "--text", "fine")
    assert done.returncode == 2
    assert done.stderr == (
        "unrolled: nothere does not exist. Give a run folder made by `unrolled train`, or a model file.\n"
    )


def test_a_text_in_the_place_of_a_file_is_told_from_a_file() -> None:
    done = run(str(folder_of("classify")), "one fine two")
    assert done.returncode == 2
    assert done.stderr == "unrolled: There is no file 'one fine two'. If it is a text, write: --text 'one fine two'\n"


def test_the_doctor_needs_no_torch() -> None:
    native = [] if NATIVE is None else ["--need", "native"]
    done = unrolled("doctor", "--json", *native)
    assert (done.stderr, done.returncode) == ("", 0)
    facts = json.loads(done.stdout)
    assert facts["torch"].startswith("not installed (pip install torch)")
    assert facts["native"].startswith("not built" if NATIVE is None else f"built; {NATIVE.isa()} kernels")
    assert facts["onnxruntime"] == importlib.metadata.version("onnxruntime")
    assert facts["engines"] == {}
    other = unrolled("doctor", "--need", "cuda")
    assert (other.returncode, other.stderr.partition(".")[0]) == (
        2,
        "unrolled: This needs torch, which is not installed",
    )
