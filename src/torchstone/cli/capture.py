"""``torchstone capture``: run a program and record the operators that it calls as a suite."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from torchstone.cli.parameters import split_commas
from torchstone.errors import InfrastructureError, UsageError

_PYTHON = re.compile(r"(python|pypy)[0-9.]*(\.exe)?")
_OPTIONS_WITH_VALUES = ("-W", "-X")
_TARGET_KIND_OF_OPTION = {"-m": "module", "-c": "code"}
_SIGNAL_EXIT_CODE_BASE = 128
"""Exit code of a program that a signal ended, less the signal's number; as in shells."""


class Program(NamedTuple):
    """The parts of a command line such as ``python -u -m package.module arguments``."""

    python: str
    options: tuple[str, ...]
    kind: str
    target: str
    arguments: tuple[str, ...]


@click.command(
    short_help="Run a program and record the operators it calls, as a suite.",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("calls.jsonl"),
    show_default=True,
    help="The file to write.",
)
@click.option("--ops", multiple=True, metavar="NAMES", help="Only these operators: add,aten.relu.default.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- python SCRIPT.py [ARGS]...")
def capture(output: Path, ops: tuple[str, ...], command: tuple[str, ...]) -> int:
    """Run a Python program and record the ATen operators that it calls, forward and backward, as a suite.

    The exit code is the program's own. Judge the file with: torchstone run --suite captured --source FILE
    """
    if not output.absolute().parent.is_dir():
        raise UsageError(f"'{output.parent}' is not a folder. Make it, or choose another file.")
    program = take_apart(command)
    _require_torchstone(program)
    before = _identity(output)
    code = _run(_recorder_command(program, output, split_commas(ops)))
    if _identity(output) == before:
        click.echo(f"error: the program ended before its calls could be written to {output}.", err=True)
        return code or InfrastructureError.exit_code
    return code


def take_apart(command: Sequence[str]) -> Program:
    """Split the command line into its parts. A script without a Python runs with the Python of this process."""
    first, *rest = command
    if first.endswith(".py"):
        return Program(sys.executable, (), "script", first, tuple(rest))
    python = shutil.which(first)
    if python is None or not _PYTHON.fullmatch(Path(first).name):
        raise UsageError(f"'{first}' is not a Python interpreter. Write the program as: -- python script.py arguments")
    options: list[str] = []
    while rest and rest[0].startswith("-") and rest[0] not in _TARGET_KIND_OF_OPTION:
        count = 2 if rest[0] in _OPTIONS_WITH_VALUES else 1
        options += rest[:count]
        rest = rest[count:]
    kind = _TARGET_KIND_OF_OPTION.get(rest[0], "script") if rest else "script"
    rest = rest if kind == "script" else rest[1:]
    if not rest:
        raise UsageError("there is no program to run. Write it as: -- python script.py arguments")
    if kind == "script" and not Path(rest[0]).exists():
        raise UsageError(f"there is no file '{rest[0]}' to run.")
    return Program(python, tuple(options), kind, rest[0], tuple(rest[1:]))


def _require_torchstone(program: Program) -> None:
    probe = "import importlib.util as u, sys; sys.exit(not (u.find_spec('torchstone') and u.find_spec('torch')))"
    if subprocess.run([program.python, *program.options, "-c", probe], check=False).returncode:
        raise UsageError(f"{program.python} has no torchstone, or no torch. Install torchstone there.")


def _recorder_command(program: Program, output: Path, operators: tuple[str, ...] | None) -> list[str]:
    from torchstone.schema import encode

    order: dict[str, Any] = {
        "path": str(output.absolute()),
        "kind": program.kind,
        "target": program.target,
        "arguments": program.arguments,
        "operators": operators,
    }
    return [program.python, *program.options, "-m", "torchstone.suites.capture_script", encode(order).decode()]


def _run(command: list[str]) -> int:
    """Run the program and return its exit code. Ctrl-C reaches the program too; this waits until it has ended."""
    process = subprocess.Popen(command)
    while True:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            continue
        return code if code >= 0 else _SIGNAL_EXIT_CODE_BASE - code


def _identity(path: Path) -> tuple[int, int] | None:
    """Inode and modification time: they change when the file is written again."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
