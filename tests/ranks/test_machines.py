"""Training on two machines, by torchrun's own rendezvous; the machines are network namespaces."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.faults.test_resume import TEXT, assert_same
from tests.ranks.launch import LIMIT, environment, said, torchrun, torchrun_words
from tests.ranks.machines import NAMES, can_be_made, on_machine, two_machines, write_hosts
from tests.ranks.test_faults import words

pytestmark = [
    pytest.mark.skipif("UNROLLED_SLOW" not in os.environ, reason="slow; `make kill` runs it"),
    pytest.mark.skipif(not can_be_made(), reason="network namespaces need root, ip and unshare"),
]


def started(name: str, hosts: Path, command: list[str], endpoint: str) -> subprocess.Popen[str]:
    meeting = ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "7")
    full = on_machine(name, hosts, torchrun_words(command, 1, meeting))
    return subprocess.Popen(full, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("loopback", [False, True], ids=["own address in its hosts file", "own name is 127.0.1.1"])
def test_two_machines_train_what_two_processes_train(loopback: bool, tmp_path: Path) -> None:
    text = tmp_path / "sums.txt"
    text.write_text(TEXT)
    assert torchrun(words(text, tmp_path / "whole")).returncode == 0
    with two_machines() as names:
        hosts = [write_hosts(tmp_path / name, name, loopback=loopback) for name in names]
        ends = [
            started(name, place, words(text, tmp_path / "run"), f"{NAMES[0]}:29400")
            for name, place in zip(names, hosts, strict=True)
        ]
        for one in ends:
            _, stderr = one.communicate(timeout=LIMIT)
            assert one.returncode == 0, stderr
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_machines_with_other_files_say_so_once(tmp_path: Path) -> None:
    """Each has a file of its own at the same path, as where nothing is shared."""
    with two_machines() as names:
        ends = []
        for name in names:
            text = tmp_path / f"{name}.txt"
            text.write_text(TEXT + name)
            hosts = write_hosts(tmp_path / f"hosts-{name}", name, loopback=False)
            ends.append(started(name, hosts, words(text, tmp_path / "run"), f"{NAMES[0]}:29400"))
        outputs = [one.communicate(timeout=LIMIT)[1] for one in ends]
    assert all(one.returncode for one in ends)
    (message,) = [line for stderr in outputs for line in said(stderr)]
    assert f"(on {NAMES[1]})" in message or f"(on {NAMES[0]})" in message
    assert "do not have the same data" in message
    assert not (tmp_path / "run").exists()
