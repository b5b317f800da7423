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
_OWN_FRAME = re.compile(rf"/torchstone/({'|'.join(OUR_ROOMS)})[/.]|<frozen importlib")
"""Matches frames of the worker and of the import system, which precede the kernel's frames."""


def kernels_own_lines(verdict: Verdict, log_tail: str) -> Iterator[str]:
    """The kernel's traceback and output, each indented under a heading; empty if there is neither."""
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
    kernel_frames = [place for place in frames if not _OWN_FRAME.search(lines[place])]
    if not lines or not lines[0].startswith("Traceback") or not kernel_frames:
        return trace
    return "\n".join([lines[0], *lines[kernel_frames[0] :]])


def _repeats_counted(lines: Iterable[str]) -> Iterator[str]:
    """Repeated lines once, with how often they occur: a kernel may print the same line in every call."""
    for line, same in itertools.groupby(lines):
        times = sum(1 for _ in same)
        yield line if times == 1 else f"{line}  ({times} times)"


def hanging(line: str, indent: str, width: int | None) -> list[str]:
    """The line broken into parts of at most ``width`` columns, indented from the second on. None: not broken."""
    if width is None:
        return [line]
    lead = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(line.strip(), width, initial_indent=lead, subsequent_indent=indent, break_on_hyphens=False)
