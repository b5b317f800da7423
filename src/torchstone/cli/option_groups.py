"""A click command whose help shows its options in named groups.

An option's declaration names its group. Options without a group come last, under "Other".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

OTHER = "Other"
"""Heading of the options without a group, such as `--help`."""

_NAMES_WIDTH = 30
"""Columns for the names of options, the same in every group. A longer name gets a line of its own."""


class GroupedOption(click.Option):
    """An option with the heading under which the help shows it."""

    def __init__(self, *args: Any, group: str = OTHER, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


class GroupedCommand(click.Command):
    """Shows its options under headings: in the order of `groups`, and within one in the order of declaration."""

    def __init__(self, *args: Any, groups: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._groups = tuple(groups)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: dict[str, list[tuple[str, str]]] = {name: [] for name in self._groups}
        for parameter in self.get_params(ctx):
            shown = parameter.get_help_record(ctx)
            if shown is not None:
                rows.setdefault(_group_of(parameter), []).append(shown)
        rows[OTHER] = rows.pop(OTHER, [])
        widest = max(len(names) for listed in rows.values() for names, _ in listed)
        for group, listed in rows.items():
            if listed:
                with formatter.section(group):
                    formatter.write_dl([(names.ljust(min(widest, _NAMES_WIDTH)), text) for names, text in listed])


def option(*names: str, group: str = OTHER, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``click.option`` with a group. Commands whose help has no groups may use it too."""
    return click.option(*names, cls=GroupedOption, group=group, **settings)


def _group_of(parameter: click.Parameter) -> str:
    return parameter.group if isinstance(parameter, GroupedOption) else OTHER
