"""Parsing that all commands share."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from typer.core import TyperCommand, TyperOption

from unrolled.cli.ranks import may_speak
from unrolled.errors import UserError


class Verb(TyperCommand):
    """A command that rejects a repeated option, unless it takes a list: only the last value would count.

    In its help, flags without a value have no type.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)
        for one in params:
            if isinstance(one, TyperOption) and one.is_flag:
                one.metavar = ""
        return params

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            self._check_once(ctx, args)
            return super().parse_args(ctx, args)
        except Exception as error:
            if not hasattr(error, "exit_code") or may_speak():  # a usage error has one
                raise
            sys.exit(error.exit_code)

    def _check_once(self, ctx: Any, args: list[str]) -> None:
        _, _, parsed = self.make_parser(ctx).parse_args(args=list(args))
        for option, times in Counter(parsed).items():
            if times > 1 and isinstance(option, TyperOption) and not (option.multiple or option.is_flag):
                name = max(option.opts, key=len)
                fix = "Give it once."
                if name in ("--train", "--valid"):
                    fix = "Give one file with the rows of all."
                raise UserError(f"{name} is given {'twice' if times == 2 else f'{times} times'}.", fix)
