"""Prints the scores of generation runs as tables: a row for each score or operator, a column for each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchstone.generation.scores import Difference, Interval, OperatorScore, RunScores, ScoreReport
from torchstone.reports.console import make_table, print_line, print_table
from torchstone.reports.safe_text import counted, one_line, ratio

_DASH = "–"
Row = tuple[str, Callable[[RunScores], str]]


def render(report: ScoreReport, console: Console) -> None:
    """Print the scores side by side, the operators, and how the other runs differ from the first."""
    table = make_table(console, "scores", ["", *(_name(run) for run in report.runs)])
    for name, cell in _rows(report):
        table.add_row(name, *(Text(cell(run)) for run in report.runs))
    print_table(console, table)
    console.print()
    print_table(console, _operators(report, console))
    for item in report.differences:
        print_line(console, Text(_difference(item), "bold"))


def _name(run: RunScores) -> str:
    return one_line(Path(run.run).name)


def _rows(report: ScoreReport) -> list[Row]:
    ks = dict.fromkeys(found.k for run in report.runs for found in run.pass_at)
    fast = dict.fromkeys(p for run in report.runs for p in run.fast)
    costs = any(run.usage.cost_usd is not None for run in report.runs)
    kinds = dict.fromkeys(kind for run in report.runs for kind in run.failures)
    return [
        ("model", lambda run: one_line(f"{run.model} ({run.provider})")),
        (
            "language, strategy",
            lambda run: f"{run.dsl}, {run.strategy}, {counted(run.max_attempts, 'attempt')} at most",
        ),
        ("operators", lambda run: f"{run.operators}" + (f", {run.open_operators} open" if run.open_operators else "")),
        ("correct", lambda run: f"{run.right_operators}: {_percent(run.correct)}"),
        ("  with code of their own", lambda run: _percent(run.correct_with_own_code)),
        ("  torch's work alone", lambda run: f"{run.torch_only_operators} of {run.right_operators}"),
        *((f"fast_{p} (perf@{p})", partial(_fast, p)) for p in fast),
        *((f"pass@{k}", partial(_pass_at, k)) for k in ks),
        ("speedup of the right", lambda run: ratio(run.geomean_speedup)),
        ("attempts to success", _attempts_to_success),
        ("tokens", lambda run: f"{run.usage.tokens:,}"),
        ("tokens per right kernel", lambda run: _number(run.tokens_per_right, ",.0f")),
        *([("cost per right kernel", lambda run: _dollars(run.cost_usd_per_right))] if costs else []),
        ("attempts", lambda run: f"{run.attempts}"),
        *((f"  {kind}", partial(_failed, kind)) for kind in kinds),
        ("attempted cheats", _cheats),
    ]


def _fast(p: str, run: RunScores) -> str:
    return _percent(run.fast.get(p))


def _pass_at(k: int, run: RunScores) -> str:
    found = next((item for item in run.pass_at if item.k == k), None)
    if found is None:
        return _DASH
    of = "" if found.operators == run.operators else f" of {counted(found.operators, 'operator')}"
    return _percent(found.estimate) + of


def _failed(kind: str, run: RunScores) -> str:
    return f"{run.failures.get(kind, 0)}"


def _percent(found: Interval | None) -> str:
    """``40 % (12 to 77)``."""
    if found is None:
        return _DASH
    return f"{100 * found.value:.0f} % ({100 * found.low:.0f} to {100 * found.high:.0f})"


def _number(value: float | None, form: str) -> str:
    return _DASH if value is None else format(value, form)


def _dollars(value: float | None) -> str:
    return _DASH if value is None else f"${value:.4f}" if value < 1 else f"${value:.2f}"


def _attempts_to_success(run: RunScores) -> str:
    if run.mean_attempts_to_success is None:
        return _DASH
    listed = ", ".join(f"{count} at {number}" for number, count in run.attempts_to_success.items())
    return f"{run.mean_attempts_to_success:.2f} ({listed})"


def _cheats(run: RunScores) -> str:
    return f"{run.cheating_attempts} of {counted(run.cheating_operators, 'operator')}" if run.cheating_attempts else "0"


def _operators(report: ScoreReport, console: Console) -> Table:
    table = make_table(console, "operators", ["operator", *(_name(run) for run in report.runs)])
    found = [{item.operator: item for item in run.per_operator} for run in report.runs]
    for name in sorted({name for each in found for name in each}):
        table.add_row(name, *(Text(_cell(each.get(name))) for each in found))
    return table


def _cell(item: OperatorScore | None) -> str:
    """``1.31x, attempt 3 of 5``: the best right attempt; or a text that says that there is none."""
    if item is None:
        return _DASH
    tried = f"of {item.attempts}"
    if item.best is None:
        return f"none right {tried}" if item.attempts else "open"
    speed = "right" if item.speedup is None else ratio(item.speedup)
    return f"{speed}, attempt {item.best} {tried}" + (", torch's work" if item.is_torch_only else "")


def _difference(item: Difference) -> str:
    parts = [
        f"{Path(item.second).name} against {Path(item.first).name}: {counted(item.operators, 'operator')} in common",
        f"both right {item.both_right}, only the first {item.only_first}, only the second {item.only_second}",
    ]
    if item.only_first or item.only_second:
        parts.append(f"a split as uneven by chance: probability {item.chance:.2g}")
    if item.speedup_ratio is not None:
        found = item.speedup_ratio
        parts.append(f"speedup {found.value:.2f} times the first's ({found.low:.2f} to {found.high:.2f})")
    return one_line(" · ".join(parts), limit=1000)


def print_report(report: ScoreReport, console: Console, problems: Sequence[str] = ()) -> None:
    """Print the problems of the journals as warnings, then the tables."""
    for problem in problems:
        print_line(console, Text(f"warning: {one_line(problem)}", "yellow"))
    render(report, console)
