"""The meeting of the processes that torchrun started; one of them tells the user about an error."""

from __future__ import annotations

import atexit
import json
import os
import re
import time
import uuid
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from unrolled.errors import UserError
from unrolled.training.addresses import SeenFrom, use_interface, view_of
from unrolled.training.place import RankPlace
from unrolled.training.ranks import ALONE, Ranks

TIMEOUT, POLL = 300.0, 0.01  # seconds
GLOO, NCCL = "gloo", "cpu:gloo,cuda:nccl"
FOLDER = "unrolled/folder"

_STORE: list[Any] = []  # of this process; torchrun's agent keeps what is in it
_HERE: list[Ranks] = []
_SESSION: list[str] = []
_BEGUN: list[str] = []  # runs, in their order


def join(device: torch.device, backend: str = "auto", timeout: float = TIMEOUT) -> Ranks:
    """The processes that torchrun started with this one; a world of one without torchrun. They meet once."""
    if _HERE:
        return _HERE[0]
    place = RankPlace.of(os.environ)
    if place.world == 1:
        return ALONE
    chosen, limit = _backend(backend, device), timedelta(seconds=timeout)
    try:
        store = _store(place, timeout)
        session = _session(store, place, timeout)
        own = PrefixStore(session, store)
        if place.local_world < place.world:
            _use_common_interface(own, place)
        dist.init_process_group(chosen, store=own, rank=place.rank, world_size=place.world, timeout=limit)
    except (RuntimeError, ValueError) as error:
        raise _no_meeting(error, place) from None
    atexit.register(dist.destroy_process_group)  # its threads must end before the program does
    _HERE.append(Ranks(place, chosen))
    _SESSION.append(session)
    return _HERE[0]


def _use_common_interface(store: Any, place: RankPlace) -> None:
    """Let gloo use addresses that the other machines reach."""
    view = view_of(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    store.set(f"view/{place.rank}", json.dumps(view))
    every = [SeenFrom(*json.loads(store.get(f"view/{rank}"))) for rank in range(place.world)]
    use_interface(view, every)


def may_speak() -> bool:
    """True of one process alone, which tells the user about an error: the first that has one."""
    if not _HERE and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    try:
        store = _store(RankPlace.of(os.environ), 5.0)
        attempt = _SESSION[0] if _SESSION else os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return bool(store.add(f"unrolled/errors/{attempt}", 1) == 1)
    except (RuntimeError, ValueError):  # nobody can be asked
        return True


def remember_folder(folder: str, *, first: bool) -> None:
    """Tell the processes that may take the place of these, after a restart, where the run is; `first` writes it."""
    if _STORE:
        if first:
            _lasting(_STORE[0]).set(f"{FOLDER}/{len(_BEGUN)}", folder)
        _BEGUN.append(folder)


def remembered_folder() -> str | None:
    """The run that earlier processes had begun at this point: torchrun started the command again."""
    place = RankPlace.of(os.environ)
    if place.world == 1 or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    try:
        store = _lasting(_store(place, TIMEOUT))
        key = f"{FOLDER}/{len(_BEGUN)}"
        found = store.get(key).decode() if store.check([key]) else None
    except (RuntimeError, ValueError) as error:
        raise _no_meeting(error, place) from None
    if found is not None:
        _BEGUN.append(found)
    return found


def _store(place: RankPlace, timeout: float) -> Any:
    """The store through which processes find each other; torchrun may keep one over restarts."""
    if not _STORE:
        limit = timedelta(seconds=timeout)
        store, _, _ = next(rendezvous("env://", place.rank, place.world, timeout=limit))
        _STORE.append(store)
    _STORE[0].set_timeout(timedelta(seconds=timeout))
    return _STORE[0]


def _session(store: Any, place: RankPlace, timeout: float) -> str:
    """A name for this meeting, known to all processes of it and to none of those before a restart.

    The store may still have the words of processes that died. So each of these says a new word, and the first one
    answers every word that it reads until all have heard its own.
    """
    own = uuid.uuid4().hex
    if place.rank:
        store.set(f"unrolled/hello/{place.rank}", own)
        session: str = store.get(f"unrolled/welcome/{own}").decode()  # waits for it
        store.set(f"unrolled/{session}/{place.rank}", "here")
        return session
    missing, until = set(range(1, place.world)), time.monotonic() + timeout
    while missing:
        for rank in sorted(missing):
            hello = f"unrolled/hello/{rank}"
            if store.check([f"unrolled/{own}/{rank}"]):
                missing.remove(rank)
            elif store.check([hello]):
                store.set(f"unrolled/welcome/{store.get(hello).decode()}", own)
        if time.monotonic() > until:
            raise RuntimeError(f"{len(missing)} did not come within {timeout:g} seconds")
        time.sleep(POLL)
    return own


def _lasting(store: Any) -> Any:
    """The store beneath those of each restart."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return store


def _backend(backend: str, device: torch.device) -> str:
    if backend == "nccl" and device.type == "cpu":
        raise UserError(
            "train.backend=nccl adds up on GPUs, and this run computes on CPUs.",
            "Use train.backend=auto, which is gloo there.",
        )
    return NCCL if backend == "nccl" or (backend == "auto" and device.type != "cpu") else GLOO


def _no_meeting(error: Exception, place: RankPlace) -> UserError:
    reason = re.sub(r"\[[^\]]*\.cc:\d+\] ", "", str(error).strip().splitlines()[0])[:200].rstrip(".")
    address = f"{os.environ.get('MASTER_ADDR', '?')}:{os.environ.get('MASTER_PORT', '?')}"
    if "EADDRINUSE" in str(error) or "in use" in str(error):
        return UserError(f"{address} is in use.", "Choose another port: torchrun --master-port.")
    return UserError(
        f"Process {place.rank} of {place.world} did not meet the others at {address}: {reason}.",
        "Check that all were started and that every machine reaches the address; train.timeout is how long they wait.",
    )
