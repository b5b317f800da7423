"""Formats the traceback and the output of a failed kernel as lines that are safe to print."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator

from torchstone.reports.safe_text import printable_lines
from torchstone.schema import Crashed, Verdict

_FRAME = re.compile(r'  File "(?P<file>[^"]*)", line \d+')
OUR_ROOMS = ("worker", "protocol", "operators", "calls", "gradient_operators", "model_operators", "chain_arithmetic")
_OURS = re.compile(rf"/torchstone/({'|'.join(OUR_ROOMS)})[/.]|<frozen importlib")
"""Files of the worker and of the import system, whose frames stand before those of the kernel."""


def kernels_own_lines(verdict: Verdict, log_tail: str) -> Iterator[str]:
    """Traceback and output, each under a heading and indented; nothing if there is neither."""
    trace = verdict.traceback if isinstance(verdict, Crashed) else None
    if trace and trace.strip():
        yield "  traceback:"
        yield from (f"    {line}".rstrip() for line in printable_lines(without_our_frames(trace)))
    if log_tail.strip():
        yield "  the kernel's output, its end:"
        yield from (f"    {line}".rstrip() for line in _repeats_counted(printable_lines(log_tail)))


def without_our_frames(trace: str) -> str:
    """The traceback without the worker's frames before the kernel's own; unchanged if it is no Python traceback."""
    lines = trace.splitlines()
    frames = [place for place, line in enumerate(lines) if _FRAME.match(line)]
    theirs = [place for place in frames if not _OURS.search(lines[place])]
    if not lines or not lines[0].startswith("Traceback") or not theirs:
        return trace
    return "\n".join([lines[0], *lines[theirs[0] :]])


def _repeats_counted(lines: Iterable[str]) -> Iterator[str]:
    """Repeated lines once, with their number: a kernel may print the same line in every call."""
    for line, same in itertools.groupby(lines):
        times = sum(1 for _ in same)
        yield line if times == 1 else f"{line}  ({times} times)"


def hanging(line: str, indent: str, width: int | None) -> list[str]:
    """The line, broken before ``width`` columns; all parts but the first are indented. None: unbroken."""
    if width is None:
        return [line]
    lead = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(line.strip(), width, initial_indent=lead, subsequent_indent=indent, break_on_hyphens=False)
