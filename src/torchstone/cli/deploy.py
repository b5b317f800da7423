"""``torchstone deploy``: the group of commands that put judges on remote services, such as Modal."""

from __future__ import annotations

import click

from torchstone.cli.lazy import LazyGroup

DEPLOY_COMMANDS = {
    "modal": ("torchstone.cli.deploy_modal:deploy_modal", "Put judges on Modal, for --executor modal."),
}
"""Name -> import path of the command, and its line in the help."""


@click.group(
    cls=LazyGroup,
    commands_at=DEPLOY_COMMANDS,
    invoke_without_command=True,
    short_help="Put judges on Modal, for --executor modal.",
)
@click.pass_context
def deploy(context: click.Context) -> None:
    """Put judges where an executor finds them."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
