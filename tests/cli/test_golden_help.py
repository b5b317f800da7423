"""Help and lists as a terminal of 80 or 140 columns shows them, compared with the texts in ``golden/``.

CONTRIBUTING.md says how to write them anew.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from test_program import environment

from golden import require_golden

COMMANDS = {
    "run_help": ["run", "--help"],
    "list_suites": ["list", "suites"],
    "list_backends": ["list", "backends"],
}


def on_a_terminal(arguments: list[str], columns: int, home: Path) -> str:
    """What the program writes to a terminal of this width, for a user whose caches are empty."""
    ours, theirs = pty.openpty()
    variables = {"COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "dumb", "XDG_CACHE_HOME": str(home)}
    command = [sys.executable, "-m", "torchstone", *arguments]
    process = subprocess.Popen(command, stdout=theirs, cwd=home, env={**environment(), **variables})
    os.close(theirs)
    parts: list[bytes] = []
    while part := _read(ours):
        parts.append(part)
    os.close(ours)
    assert process.wait(60) == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other side is closed
        return b""


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_terminal_shows_what_is_expected(name: str, columns: int, tmp_path: Path) -> None:
    shown = on_a_terminal(COMMANDS[name], columns, tmp_path)
    assert all(len(line) <= columns and line == line.rstrip() for line in shown.splitlines())
    require_golden(f"{name}_{columns}", shown)
