"""The command line: imports a command when it is used, runs it, and returns its exit code.

Exit codes of `run`: 0 all kernels agree, 1 some do not (or nothing could be judged). Of every command: 2 wrong usage,
3 the machine prevented an answer, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from torchstone.cli.closed_pipes import closed_pipes_ignored
from torchstone.cli.lazy import LazyGroup
from torchstone.cli.name_lists import WIDEST
from torchstone.errors import TorchstoneError

COMMANDS = {
    "run": ("torchstone.cli.run:run", "Judge a backend's kernels on a suite of cases."),
    "fuzz": ("torchstone.cli.fuzz:fuzz", "Search for the smallest case on which a kernel fails."),
    "watch": ("torchstone.cli.watch:watch", "Judge a folder of kernels, and again whatever changes."),
    "show": ("torchstone.cli.show:show", "Show the results of a run folder again."),
    "replay": ("torchstone.cli.replay:replay", "Repeat the calls of recorded failures, with the same values."),
    "profile": ("torchstone.cli.profile:profile", "Show where a kernel's time goes: torch's profiler, ncu, nsys."),
    "model": ("torchstone.cli.model:model", "Train a model with and without a folder of kernels, and compare."),
    "pairs": ("torchstone.cli.pairs:pairs", "Run baseline against optimized benchmarks, hundreds with one command."),
    "sweep": ("torchstone.cli.sweep:sweep", "Time operations in several implementations over a grid of sizes."),
    "generate": (
        "torchstone.cli.generate:generate",
        "Let a model write kernels and tell it what the judge found.",
    ),
    "mcp": ("torchstone.cli.mcp:mcp", "Serve coding agents: check, measure and profile kernels over MCP."),
    "new-kernels": ("torchstone.cli.new_kernels:new_kernels", "Write a folder of stubs for a suite's operators."),
    "capture": ("torchstone.cli.capture:capture", "Run a program and record the operators it calls, as a suite."),
    "list": ("torchstone.cli.list_names:names", "List suites, backends, or the operators of a suite."),
    "audit-suite": ("torchstone.cli.audit_suite:audit_suite", "Run trivial adversaries against every case of a suite."),
    "redteam": (
        "torchstone.cli.redteam:redteam",
        "Attack this installation with known cheats and show what is stopped.",
    ),
    "deploy": ("torchstone.cli.deploy:deploy", "Put judges on Modal, for --executor modal."),
    "diff-manifests": (
        "torchstone.cli.diff_manifests:diff_manifests",
        "Show what differs between two runs' circumstances.",
    ),
    "doctor": (
        "torchstone.cli.doctor:doctor",
        "Show devices, versions, isolation, compilers, profilers and extras, and how to get what is missing.",
    ),
}
"""Name -> import path of the command, and its line in the help. A new command is one line here and one module."""

INTERRUPTED = 130


def _print_version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from torchstone.executors.versions import own_version

        click.echo(f"torchstone {own_version()}")
        context.exit()


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDEST},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def torchstone() -> None:
    """Judge PyTorch operator kernels: is it right, how fast is it, can the number be trusted."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. A `TorchstoneError` is one line on stderr, never a traceback."""
    with closed_pipes_ignored():
        return _code_of(list(sys.argv[1:] if argv is None else argv) or ["--help"])


def _code_of(arguments: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        words = ("torchstone", *arguments)  # a run stores the command line that started it
        code = torchstone.main(arguments, prog_name="torchstone", standalone_mode=False, obj=words)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        return _fail(_click_message(error), error.exit_code)
    except TorchstoneError as error:
        return _fail(str(error), error.exit_code)
    return code if isinstance(code, int) else 0


def _click_message(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    hint = f" See '{context.command_path} --help'." if context is not None else ""
    return error.format_message() + hint


def _fail(message: str, code: int) -> int:
    from torchstone.reports.safe_text import one_line

    click.echo(f"error: {one_line(message, limit=2000)}", err=True)
    return code
