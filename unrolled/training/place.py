"""The place of a process among those that torchrun started, as its environment says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from unrolled.errors import UserError

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@dataclass(frozen=True)
class RankPlace:
    """The place of this process among all."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1  # on this machine
    parent: int = field(default_factory=os.getppid, compare=False, repr=False)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> RankPlace:
        """The place that torchrun's variables give; alone without them.

        >>> RankPlace.of({"RANK": "1", "WORLD_SIZE": "2"})
        RankPlace(rank=1, world=2, local_rank=0, local_world=1)
        """
        if "RANK" not in environment or "WORLD_SIZE" not in environment:
            return cls()
        given = {name: environment[name] for name in NAMES if name in environment}
        try:
            numbers = [int(given.get(name, usual)) for name, usual in zip(NAMES, (0, 1, 0, 1), strict=True)]
        except ValueError:
            raise UserError(f"These variables are not all numbers: {given}.", "Let torchrun set them.") from None
        if not 0 <= numbers[0] < numbers[1]:
            raise UserError(f"RANK={numbers[0]} is not below WORLD_SIZE={numbers[1]}.", "Let torchrun set them.")
        return cls(*numbers)

    @property
    def is_orphan(self) -> bool:
        """True if the process that started this one is gone: nobody would start it again, or end it."""
        return self.world > 1 and os.getppid() != self.parent
