"""Two machines in one: network namespaces joined by a cable, each with a host name and a hosts file of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

NET = "10.207.46"  # private addresses that exist inside the two namespaces alone
NAMES = ("unrolled-one", "unrolled-two")
START = 'mount --bind "$0" /etc/hosts && hostname "$1" && shift && exec "$@"'


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def two_machines() -> Iterator[tuple[str, str]]:
    """The names of two machines that reach each other and nothing else; needs root and Linux's `ip`."""
    made: list[str] = []
    try:
        for name in NAMES:
            ip("netns", "add", name)
            made.append(name)
        ip("link", "add", "cable", "netns", NAMES[0], "type", "veth", "peer", "name", "cable", "netns", NAMES[1])
        for number, name in enumerate(NAMES, 1):
            ip("-n", name, "address", "add", f"{NET}.{number}/24", "dev", "cable")
            for device in ("lo", "cable"):
                ip("-n", name, "link", "set", device, "up")
        yield NAMES
    finally:
        for name in made:  # the cable goes with them
            ip("netns", "delete", name)


def write_hosts(path: Path, own: str, *, loopback: bool) -> Path:
    """A hosts file in which both machines have their addresses; with `loopback` its own is 127.0.1.1, as on Debian."""
    lines = ["127.0.0.1 localhost"]
    for number, name in enumerate(NAMES, 1):
        lines.append(f"{'127.0.1.1' if loopback and name == own else f'{NET}.{number}'} {name}")
    path.write_text("\n".join(lines) + "\n")
    return path


def on_machine(name: str, hosts: Path, words: Sequence[str]) -> list[str]:
    """The words of a command that runs on one of the machines."""
    inside = ["unshare", "--mount", "--uts", "sh", "-c", START, str(hosts), name, *words]
    return ["ip", "netns", "exec", name, *inside]


def can_be_made() -> bool:
    """True if this user may make namespaces."""
    if os.name != "posix" or os.geteuid() != 0:
        return False
    return all(any(Path(p, tool).exists() for p in os.environ["PATH"].split(":")) for tool in ("ip", "unshare"))
