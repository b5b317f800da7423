"""What people read of a run, word for word, from fixed records: no judge is started.

The expected texts lie in ``tests/cli/golden``; `golden.py` says how to write them anew.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

import made_records as making
from golden import require_golden
from torchstone.backends import Problem
from torchstone.cli.model import _print
from torchstone.installing.training_comparison import Difference, ModelComparison, OperatorUse, Times
from torchstone.reports import make_report
from torchstone.reports.console import make_console
from torchstone.reports.render import render
from torchstone.schema import (
    Crashed,
    Disagrees,
    Disturbance,
    ErrorStatistics,
    Git,
    Gpu,
    Hardware,
    Manifest,
    Missing,
    PlannedCases,
    PlannedRun,
    Record,
    RunDescription,
    RunPart,
    Software,
    TimedOut,
    Verdict,
)

FOLDER = Path("torchstone_runs/x")
BEGAN = 1_772_366_400 * 10**9
RELU, ADD, NORM = "aten.relu.default", "aten.add.Tensor", "aten.native_layer_norm.default"
LOAD = Crashed("load", "exception", "ImportError: No module named 'common_ops'", traceback="Traceback …")
WRONG = Disagrees("check", "values", "at [3]: got 1, expected 2", ErrorStatistics(1.0, 0.5, 4e5, 0.2))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def record(
    operator: str,
    size: int,
    verdict: Verdict = making.AGREES,
    *,
    backend: str = "directory",
    ns: tuple[int, int] | None = None,
    seconds: tuple[float, float] = (0.25, 0.5),
    after: float = 1.0,
) -> Record:
    """A record of this backend; `ns`: times of candidate and reference, `after`: seconds since the run began."""
    measured = None if ns is None else making.measurement(*ns)
    made = making.record(verdict, of=making.case(operator, size, timed=ns is not None), measured=measured)
    stages = {"load": seconds[0], "check": seconds[1]} | ({} if ns is None else {"measure": 2.0})
    return msgspec.structs.replace(
        made,
        job_key=f"{backend}-{operator}-{size}",
        implementation=msgspec.structs.replace(made.implementation, backend=backend),
        stage_seconds=stages,
        finished_unix_ns=BEGAN + round(after * 1e9),
    )


def manifest(backend: str | list[str] = "directory", gpus: int = 0) -> Manifest:
    gpu = [Gpu(number, "NVIDIA H200", f"GPU-{number}", 150 << 30) for number in range(gpus)]
    return Manifest(
        hardware=Hardware("AMD EPYC 9654", 2, 16 << 30, tuple(gpu)),
        software=Software("0.1.0", "3.12.3", "linux", {"torch": "2.9.0", "triton": "3.5.0"}, "13.0", "580.65"),
        git=Git("eb5579b1c2d3e4f5061728394a5b6c7d8e9f0011", "main", dirty=True),
        environment={},
        seeds={},
        configuration={"suite": "smoke", "backend": backend, "device": "cuda" if gpus else "cpu"},
    )


def description(records: list[Record], missed: int = 0, **about: object) -> RunDescription:
    """The description of a run of these records, and of `missed` more cases of aten.mm.default that were not judged."""
    made = manifest(**about)  # type: ignore[arg-type]
    keys = [(item.implementation.backend, item.case.operator) for item in records]
    cases = [PlannedCases(*key, keys.count(key)) for key in dict.fromkeys(keys)]
    cases += [PlannedCases("directory", "aten.mm.default", missed)] if missed else []
    command = ("torchstone", "run", "--backend", "directory", "--kernels-dir", "my kernels", "--effort", "quick")
    return RunDescription(made, PlannedRun(tuple(cases), (RunPart(BEGAN, command),)))


MIXED = [
    record(RELU, 8, ns=(5_000, 10_000), after=3.5),
    record(RELU, 16, ns=(2_500, 10_000), after=6.5),
    record(RELU, 2),
    record(ADD, 8, ns=(10_050, 10_000)),
    record(ADD, 16, WRONG),
    record(NORM, 4, ns=(123_456, 100_000), after=75.25),
    record(
        "aten.sum.default", 8, Missing("backend 'directory' offers nothing for aten.sum.default: k has no folder sum")
    ),
]
FAILING = [
    *(record(RELU, size, LOAD) for size in (2, 4, 8, 16, 32)),
    record(RELU, 64, WRONG),
    *(record(ADD, size, TimedOut("compile", 10.0, 10.0 + size / 10)) for size in (1, 2)),
    record(ADD, 4, LOAD),
]
COMPARED = [
    record(RELU, 8, backend="aten", ns=(10_000, 10_000)),
    record(RELU, 8, backend="directory", ns=(5_000, 10_000)),
    record(RELU, 8, backend="compile", ns=(8_000, 10_000)),
    record(ADD, 8, backend="aten", ns=(10_000, 10_000)),
    record(ADD, 8, backend="compile", ns=(10_000, 10_000)),
    record(ADD, 8, WRONG, backend="directory"),
    record(NORM, 4, backend="aten"),
    record(NORM, 4, backend="compile", ns=(50_000, 100_000)),
    record(NORM, 4, Missing(f"backend 'directory' offers nothing for {NORM}"), backend="directory"),
]
BACKENDS = ["aten", "compile", "directory"]


def printed(
    monkeypatch: pytest.MonkeyPatch,
    records: list[Record],
    about: RunDescription | None,
    columns: int | None,
    problems: Sequence[Problem] = (),
    **how: int | bool,
) -> str:
    """What a terminal of so many columns shows, colours left out; None is a pipe."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO() if columns is None else Terminal()
    render(make_report(records, problems, about), FOLDER, make_console(stream), **how)  # type: ignore[arg-type]
    return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())


def compare(name: str, text: str) -> None:
    require_golden(name, text)
    assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize(("name", "columns"), [("run_80", 80), ("run_140", 140), ("run_pipe", None)])
def test_a_run(name: str, columns: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(monkeypatch, MIXED, description(MIXED), columns)
    compare(name, text)
    tables = text.partition("\nOperators\n")[2].partition("\nDid not agree\n")[0]
    assert max(map(len, tables.splitlines()), default=0) <= (columns or 8192)


def test_wide_shows_every_column_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    compare("run_80_wide", printed(monkeypatch, MIXED, description(MIXED), 80, wide=True))


@pytest.mark.parametrize(("name", "columns"), [("backends_80", 80), ("backends_140", 140), ("backends_pipe", None)])
def test_several_backends_side_by_side(name: str, columns: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    about = description(COMPARED, backend=BACKENDS)
    compare(name, printed(monkeypatch, COMPARED, about, columns))


def test_equal_failures_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(monkeypatch, FAILING, None, 140)
    assert text.count("common_ops") == 2  # once for each operator
    compare("failures_140", text)
    compare("failures_80", printed(monkeypatch, FAILING, None, 80))


def test_failures_in_a_pipe_are_as_wide_as_other_tables_unless_all_of_them_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Texts are cut in the middle, and a line below tells where all of them are."""
    long = Crashed("load", "exception", "ImportError: " + "a long story, " * 30 + "the end")
    text = printed(monkeypatch, [*FAILING, record(RELU, 128, long)], None, None)
    compare("failures_pipe", text)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert 130 <= max(map(len, rows)) <= 140
    assert "load: ImportError: a long story, … " in text
    assert "the end" in text
    assert "cut at …; whole: torchstone show torchstone_runs/x --case OPERATOR, or --wide" in text
    whole = printed(monkeypatch, [*FAILING, record(RELU, 128, long)], None, None, wide=True)
    assert "a long story, " * 30 in whole
    assert "cut at" not in whole


def test_an_interrupted_run(monkeypatch: pytest.MonkeyPatch) -> None:
    compare("interrupted_80", printed(monkeypatch, MIXED, description(MIXED, missed=12), 80))


def test_remarks_stand_after_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    disturbances = tuple(Disturbance(number, ("machine overloaded",)) for number in range(3))
    records = [
        item
        if item.measurement is None or item.case.operator == NORM
        else msgspec.structs.replace(
            item, measurement=msgspec.structs.replace(item.measurement, disturbances=disturbances)
        )
        for item in MIXED
    ]
    problems = [Problem("rleu", "torch has no such operator or overload; did you mean 'relu'?")]
    problems += [Problem(f"kernel{number}", f"reason {number // 4}") for number in range(25)]
    compare("remarks_80", printed(monkeypatch, records, None, 80, problems))
    few = [msgspec.structs.replace(item, measurement=making.measurement()) for item in records[:2]] + records[3:4]
    assert "timing:" not in printed(monkeypatch, few, None, 80)


def test_the_slowest_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    compare("durations_80", printed(monkeypatch, MIXED[:4], description(MIXED[:4]), 80, durations=3))


def test_the_overall_summary_of_an_interrupted_run_on_gpus() -> None:
    records = [msgspec.structs.replace(item, device="cuda:0") for item in MIXED]
    report = make_report(records, (), description(records, missed=12, gpus=2))
    compare("overall_summary", report.files["OVERALL_SUMMARY.md"].decode())


def test_the_overall_summary_of_several_backends() -> None:
    report = make_report(COMPARED, (), description(COMPARED, backend=BACKENDS))
    compare("overall_summary_backends", report.files["OVERALL_SUMMARY.md"].decode())


def test_a_folder_without_a_plan_says_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(monkeypatch, MIXED, RunDescription(manifest()), None)
    assert "not judged  unknown: there is no plan.json" in text


def test_model_prints_no_box_characters_into_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    uses = (OperatorUse("aten.relu.default", "relu/relu.py", 8, 0),)
    difference = Difference("outputs, first step", "0", 2e-7, 1e-7, agrees=True)
    times = Times(0.004, 0.002, None)
    _print(ModelComparison("m.py", "k", "cpu", 2, 10, uses, (), (difference,), (1.5, 1.25), (1.5, 1.25), times))
    text = capsys.readouterr().out
    assert not re.search("[─-╿]", text)
    compare("model_pipe", text)
