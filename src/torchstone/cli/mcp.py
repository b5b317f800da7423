"""``torchstone mcp``: serves a coding agent over stdin and stdout, in the Model Context Protocol."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from torchstone.errors import MissingExtraError

_IN_A_TERMINAL = """\
torchstone mcp is a server for coding agents. It waits for an MCP client on stdin, and this is a terminal.
Let your agent start it instead:
  claude mcp add torchstone -- torchstone mcp
  codex mcp add torchstone -- torchstone mcp
Other agents: docs/mcp.md. Ctrl-C or Ctrl-D ends it."""


@click.command(short_help="Serve coding agents: check, measure and profile kernels over MCP.")
@click.option("--suite", metavar="NAME", default="smoke", show_default=True, help="Cases, if a client names no suite.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--isolation", type=click.Choice(["strict", "best"]), default="best", show_default=True)
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="CPU threads of a kernel.")
@click.option("--judges", "--num-workers", "judges", type=click.IntRange(min=1), default=1, show_default=True)
@click.option(
    "--feedback-tokens",
    type=click.IntRange(min=0),
    default=1500,
    show_default=True,
    metavar="N",
    help="Longest text of an answer, estimated; 0: no limit.",
)
@click.option(
    "--allow-unsandboxed-profilers",
    is_flag=True,
    help="Let clients use ncu and nsys, under which a kernel runs with your rights.",
)
@click.option("--profile-dir", type=click.Path(path_type=Path), default=Path("torchstone_profiles"), show_default=True)
def mcp(feedback_tokens: int, **given: Any) -> int:
    """Serve one coding agent over stdin and stdout, in the Model Context Protocol. The agent starts this command.

    Kernels run in the sandbox. Several agents start several servers, which share the devices of the machine. The server
    ends when its client closes stdin.
    """
    try:
        import mcp.server.mcpserver  # noqa: F401
    except ImportError as error:
        told = "torchstone mcp needs the MCP SDK. Install the extra: pip install 'torchstone[mcp]'."
        raise MissingExtraError(told) from error
    from torchstone.serving import KernelService, ServiceOptions
    from torchstone.serving.mcp_server import serve

    if sys.stdin.isatty():
        click.echo(_IN_A_TERMINAL, err=True)
    with KernelService(ServiceOptions(feedback_tokens=feedback_tokens or None, **given)) as service:
        serve(service)
    return 0
