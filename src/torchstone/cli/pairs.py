"""``torchstone pairs``: the group of commands for pairs of baseline and optimized benchmark files."""

from __future__ import annotations

import click

from torchstone.cli.lazy import LazyGroup

PAIRS_COMMANDS = {
    "list": ("torchstone.cli.pairs_list:list_pairs", "Show the pairs under a folder, and every file that is in none."),
    "run": ("torchstone.cli.pairs_run:run", "Run every pair, and keep every result in a run folder."),
    "show": ("torchstone.cli.pairs_show:show", "Show the results of a run again."),
    "compare": ("torchstone.cli.pairs_compare:compare", "Show what got slower or faster between two runs."),
    "expect": ("torchstone.cli.pairs_expect:expect", "Check a run against expected speedups, or update these."),
}
"""Name -> import path of the command, and its line in the help."""


@click.group(
    cls=LazyGroup,
    commands_at=PAIRS_COMMANDS,
    invoke_without_command=True,
    short_help="Run baseline against optimized benchmarks, hundreds with one command.",
)
@click.pass_context
def pairs(context: click.Context) -> None:
    """Compare baseline_NAME.py with optimized_NAME*.py: time both, check that their outputs agree, report."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
