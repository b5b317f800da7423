"""Runs a user's program for ``torchstone capture`` and records its operator calls, in a process of its own.

Started as ``python -m torchstone.suites.capture_script ORDER``. The program runs as Python would run it (its arguments,
its import path, its ``__main__``), inside a recorder. This process ends with the program's exit code. One thing
differs: torch is imported before the program's first line.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Literal

import msgspec

INTERRUPTED = 130


class CaptureOrder(msgspec.Struct, frozen=True):
    """The program to run, and the file to write."""

    path: str
    kind: Literal["script", "module", "code"]
    target: str
    arguments: tuple[str, ...] = ()
    operators: tuple[str, ...] | None = None


def main() -> None:
    order = msgspec.json.decode(sys.argv[1], type=CaptureOrder)
    from torchstone.suites.program_capture import Capture, capturing

    capture: Capture | None = None
    try:
        with capturing(Path(order.path).absolute(), order.operators, _tell) as capture:
            _run(order)
    except KeyboardInterrupt:
        _tell("interrupted; what was recorded until then is kept")
        sys.exit(INTERRUPTED)
    finally:
        if capture is not None and capture.is_finished:
            _tell(capture.closing_line)


def _tell(text: str) -> None:
    sys.stdout.flush()
    print(f"torchstone: {text}", file=sys.stderr, flush=True)


def _run(order: CaptureOrder) -> None:
    named = {"script": order.target, "module": "-m", "code": "-c"}
    sys.argv = [named[order.kind], *order.arguments]
    if order.kind == "script":
        sys.path[0] = str(Path(order.target).resolve().parent)
        runpy.run_path(order.target, run_name="__main__")
    elif order.kind == "module":
        sys.path[0] = os.getcwd()
        runpy.run_module(order.target, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = ""
        exec(compile(order.target, "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()
