"""Prints the last lines of a run: counts, scores, isolation and the folder."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

from rich.console import Console
from rich.text import Text

from torchstone.reports.console import print_line
from torchstone.reports.safe_text import counted, one_line, ratio
from torchstone.reports.summary import BackendSummary, Scores, Summary

_SEPARATOR = " · "
_INDENT = "  "
_REASON_CHARACTERS = 160
"""Characters shown of the first reason why the suite leaves something out: a line and a half of a terminal."""


def print_closing(console: Console, line: Text) -> None:
    """Print the line. On a terminal it is broken between its parts, in a pipe it is not."""
    for part in _broken_between_parts(line.plain, console.width) if console.is_terminal else [line.plain]:
        print_line(console, Text(part, line.style))


def _broken_between_parts(line: str, width: int) -> list[str]:
    """Lines of at most `width` columns, broken between parts, and at blanks where a part alone is too long."""
    lines: list[str] = []
    for part in line.split(_SEPARATOR):
        if lines and len(lines[-1] + _SEPARATOR + part) <= width:
            lines[-1] += _SEPARATOR + part
        else:
            lines.append(_INDENT + _SEPARATOR.lstrip() + part if lines else part)
    return [piece for item in lines for piece in _broken_at_blanks(item, width)]


def _broken_at_blanks(line: str, width: int) -> list[str]:
    """The line broken at blanks. Words stay whole, so that a path can be copied in one piece."""
    indent = _INDENT + " " * len(_SEPARATOR.lstrip())
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def closing_line(summary: Summary, folder: Path) -> Text:
    """Counts, missing operators, scores, what the suite left out, isolation and the run's folder, in one line."""
    if summary.compares:
        operators = len({item.operator for item in summary.operators})
        names = f"{counted(len(summary.backends), 'backend')}, {counted(operators, 'operator')}"
        parts = [names, _cases(summary, summary.not_judged or 0)]
    else:
        parts = _score_parts(summary, summary.not_judged or 0)
    parts += _left_out(summary)
    parts += [f"isolation: {summary.isolation.words}"]
    parts += ["judged on stated shapes only"] if summary.stated_shapes_cases else []
    parts += ["speedups against torch.compile"] if summary.compiled_baseline_cases else []
    return Text(_SEPARATOR.join((*parts, f"{folder}{os.sep}")), "bold")


def closing_lines(summary: Summary, folder: Path) -> list[Text]:
    """The closing line, after one for each backend where several are compared."""
    widest = max((len(item.backend) for item in summary.backends), default=0)
    return [*(_backend_line(item, widest) for item in summary.backends), closing_line(summary, folder)]


def _backend_line(item: BackendSummary, width: int) -> Text:
    best = f"best on {counted(item.operators_best, 'operator')}"
    return Text(_SEPARATOR.join((f"{item.backend:<{width}}", *_score_parts(item, item.not_judged), best)))


def _score_parts(scores: Scores, not_judged: int) -> list[str]:
    return [
        _operators(scores),
        _cases(scores, not_judged),
        f"speedup {ratio(scores.geomean_speedup)}{_unresolved(scores)}, perf@{scores.p:g} {scores.perf_at_p:.2f}",
    ]


def _left_out(summary: Summary) -> list[str]:
    """``left out 3 (19_ReLU.py: needs about 24.0 GiB …; 2 more reasons in OVERALL_SUMMARY.md)``; empty: none is."""
    if not summary.left_out:
        return []
    first, *others = summary.left_out
    more = f"; {counted(len(others), 'more reason')} in OVERALL_SUMMARY.md" if others else ""
    return [f"left out {sum(summary.left_out.values())} ({one_line(first, _REASON_CHARACTERS)}{more})"]


def _unresolved(scores: Scores) -> str:
    """How many cases the speedup leaves out, as a text; empty: none."""
    return f" without {counted(scores.cases_unresolved, 'unresolved case')}" if scores.cases_unresolved else ""


def _operators(scores: Scores) -> str:
    """``3 operators: 1 right, 0 not right, 2 not judged, 0 missing``; those not judged where there are any."""
    known = scores.operators_right + scores.operators_missing + scores.operators_not_judged
    not_judged = f"{scores.operators_not_judged} not judged, " if scores.operators_not_judged else ""
    return (
        f"{counted(scores.operators_total, 'operator')}: {scores.operators_right} right, "
        f"{scores.operators_total - known} not right, {not_judged}{scores.operators_missing} missing"
    )


def _cases(scores: Scores, not_judged: int) -> str:
    """``5 cases: 4 agrees, 1 not judged``."""
    counts = {**scores.counts, **({"not judged": not_judged} if not_judged else {})}
    listed = ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"
    return f"{counted(scores.cases + not_judged, 'case')}: {listed}"
