"""How options of all verbs are parsed."""

from __future__ import annotations

from collections import Counter
from typing import Any

from typer.core import TyperCommand, TyperOption

from unrolled.errors import UserError


class Verb(TyperCommand):
    """A command that refuses an option given again, unless it takes a list: the last one alone would count."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for option, times in Counter(given).items():
            if times > 1 and isinstance(option, TyperOption) and not (option.multiple or option.is_flag):
                name = max(option.opts, key=len)
                fix = "Give it once."
                if name in ("--train", "--valid"):
                    fix = "Give one file: put the rows of all into it."
                raise UserError(f"{name} is given {'twice' if times == 2 else f'{times} times'}.", fix)
        return super().parse_args(ctx, args)
