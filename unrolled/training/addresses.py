"""The network interface by which the processes of several machines reach each other.

gloo takes the address that a machine's own name stands for. Many machines call that 127.0.1.1 in their hosts file, and
other machines cannot reach it. So the others tell the first machine by which address they reach it.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import MutableMapping, Sequence
from ipaddress import ip_address
from typing import NamedTuple

INTERFACE = "GLOO_SOCKET_IFNAME"
SIOCGIFADDR = 0x8915  # Linux: the address of an interface


class SeenFrom(NamedTuple):
    """Addresses as a process sees them: its own on the way to the first machine, and that machine's; "" for none."""

    own: str
    first: str


def view_of(address: str, port: int) -> SeenFrom:
    """The view of this process; nothing is sent.

    >>> view_of("127.0.0.1", 29500)
    SeenFrom(own='127.0.0.1', first='127.0.0.1')
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.connect((address, port))
            return SeenFrom(one.getsockname()[0], one.getpeername()[0])
    except OSError:  # there is no IPv4 there
        return SeenFrom("", "")


def own_address(own: SeenFrom, every: Sequence[SeenFrom]) -> str:
    """The address by which the other machines reach this one; "" if none is needed.

    >>> here, there = SeenFrom("127.0.0.1", "127.0.1.1"), SeenFrom("10.0.0.2", "10.0.0.1")
    >>> own_address(here, [here, there])
    '10.0.0.1'
    """
    if not own.own:
        return ""
    if not ip_address(own.own).is_loopback:
        return own.own
    return next((view.first for view in every if view.own and not ip_address(view.own).is_loopback), "")


def interface_of(address: str) -> str:
    """The name of this machine's interface with an address; "" where none has it.

    >>> interface_of("192.0.2.1")
    ''
    """
    if not sys.platform.startswith("linux") or not address:
        return ""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(one.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:  # it has no address
                continue
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    return ""


def use_interface(own: SeenFrom, every: Sequence[SeenFrom], environment: MutableMapping[str, str] = os.environ) -> None:
    """Let gloo use the interface by which the other machines reach this one, unless the user chose one."""
    if INTERFACE not in environment and (name := interface_of(own_address(own, every))):
        environment[INTERFACE] = name
