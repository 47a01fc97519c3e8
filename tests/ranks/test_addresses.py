"""The interface by which machines reach each other: gloo takes it from its environment variable."""

from __future__ import annotations

import sys

import pytest

from unrolled.training.addresses import INTERFACE, SeenFrom, interface_of, own_address, use_interface, view_of

LOOP = SeenFrom("127.0.0.1", "127.0.1.1")
OTHER = SeenFrom("10.0.0.2", "10.0.0.1")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems leave it to gloo")


@pytest.mark.parametrize(
    ("own", "every", "address"),
    [
        (LOOP, [LOOP, OTHER], "10.0.0.1"),  # the first machine, as the other sees it
        (OTHER, [LOOP, OTHER], "10.0.0.2"),
        (LOOP, [LOOP, LOOP], ""),  # two agents on one machine
        (SeenFrom("", ""), [SeenFrom("", ""), OTHER], ""),  # no IPv4
    ],
)
def test_own_address(own: SeenFrom, every: list[SeenFrom], address: str) -> None:
    assert own_address(own, every) == address


@linux
def test_the_interface_of_an_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.77") == ""


@linux
def test_what_the_user_chose_stays() -> None:
    seen, local = SeenFrom("10.0.0.2", "127.0.0.1"), SeenFrom("127.0.0.1", "127.0.0.1")
    chosen, free = {INTERFACE: "eth7"}, dict[str, str]()
    for environment in (chosen, free):
        use_interface(local, [local, seen], environment)
    assert (chosen, free) == ({INTERFACE: "eth7"}, {INTERFACE: "lo"})


def test_a_name_that_nobody_knows_has_no_view() -> None:
    assert view_of("no-such-machine.invalid", 29500) == SeenFrom("", "")
