"""The commands in this process, with a fake executor behind them."""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import making
import pytest

from torchstone import registry
from torchstone.backends import BackendOptions, ListedBackend, Problem
from torchstone.cli import COMMANDS, main
from torchstone.cli.exit_codes import exit_code
from torchstone.cli.parameters import size_in_bytes
from torchstone.cli.progress import JUDGED_CASES, LiveProgress, PlainProgress, _PlainCount
from torchstone.errors import DeviceUnavailableError
from torchstone.executors import ExecutorOptions, FakeExecutor
from torchstone.reports import make_report
from torchstone.runs.plan import Terms, make_plan
from torchstone.schema import Job, Missing, Record, Unjudged, Unsupported, Verdict
from torchstone.suites import ListedSuite

RELU, ADD = "aten.relu.default", "aten.add.Tensor"
CASES = [making.case(operator, size) for operator in (RELU, ADD) for size in (1, 2)]

seen: list[ExecutorOptions] = []
jobs_seen: list[Job] = []
decide: Callable[[Job], Verdict] = lambda job: making.AGREES  # noqa: E731


def make_suite() -> ListedSuite:
    return ListedSuite(CASES)


class FewKernels(ListedBackend):
    def __init__(self, options: BackendOptions) -> None:
        super().__init__([making.implementation(RELU)])

    def problems(self) -> tuple[Problem, ...]:
        return (Problem("kernels/add", "no entry point\nadd_kernel_impl"),)


class AllKernels(ListedBackend):
    def __init__(self, options: BackendOptions) -> None:
        super().__init__(making.implementation(name) for name in (RELU, ADD))


class Watched(FakeExecutor):
    def __init__(self, options: ExecutorOptions) -> None:
        super().__init__(decide)
        seen.append(options)

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        jobs_seen.extend(jobs)
        return super().run(jobs_seen)


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(registry.suites._builtins, "listed", f"{__name__}:make_suite")
    monkeypatch.setitem(registry.backends._builtins, "few", f"{__name__}:FewKernels")
    monkeypatch.setitem(registry.backends._builtins, "all", f"{__name__}:AllKernels")
    monkeypatch.setitem(registry.executors._builtins, "local", f"{__name__}:Watched")
    monkeypatch.chdir(tmp_path)
    seen.clear()
    jobs_seen.clear()


def judge_by(monkeypatch: pytest.MonkeyPatch, verdict: Callable[[Job], Verdict]) -> None:
    monkeypatch.setattr(importlib.import_module(__name__), "decide", verdict)


RUN = ["run", "--suite", "listed", "--backend", "all", "--device", "cpu", "--run-id", "x"]


def test_all_agree_is_exit_code_0_with_a_table_and_a_run_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(RUN) == 0
    out, err = capsys.readouterr()
    assert "2/2 agrees" in out
    assert out.splitlines()[-1].endswith("torchstone_runs/x/")
    assert "4 cases" in err
    names = {path.name for path in Path("torchstone_runs/x").iterdir()}
    assert {"records.jsonl", "manifest.json", "OVERALL_SUMMARY.md", "operator_summary.csv"} <= names
    assert {"full_results.json", "failed_tests.json", "implementations"} <= names


@pytest.mark.parametrize(
    "verdict", [v for v in making.VERDICTS if not isinstance(v, Missing)], ids=lambda v: str(v)[:20]
)
def test_exit_codes_of_verdicts(monkeypatch: pytest.MonkeyPatch, verdict: Verdict) -> None:
    judge_by(monkeypatch, lambda job: verdict if job.case is CASES[0] else making.AGREES)
    harmless = verdict == making.AGREES or (isinstance(verdict, Unsupported) and verdict.by == "reference")
    expected = 3 if isinstance(verdict, Unjudged) else 0 if harmless else 1
    assert main(RUN) == expected


def test_missing_operators_are_warned_of_and_fail_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    few = [*RUN[:3], "--backend", "few", "--device", "cpu"]
    assert main(few) == 0
    out, err = capsys.readouterr()
    assert "2 missing" in out
    assert "warning: kernels/add: no entry point add_kernel_impl\n" in err
    assert main([*few, "--fail-on-missing"]) == 1


def test_a_run_in_which_everything_is_missing_is_exit_code_1() -> None:
    assert main([*RUN[:3], "--backend", "few", "--device", "cpu", "--ops", "add"]) == 1


def test_json_is_one_object_on_stdout_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--json"]) == 0
    out, _ = capsys.readouterr()
    told = json.loads(out)
    assert told["run_folder"] == "torchstone_runs/x"
    assert told["exit_code"] == 0
    assert told["summary"]["counts"] == {"agrees": 4}


def test_quiet_leaves_the_closing_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    assert err == ""


def test_options_reach_the_executor_and_the_jobs() -> None:
    options = ["--threads", "2", "--isolation", "none", "--memory-limit", "2GiB", "--effort", "quick", "--no-measure"]
    options += ["--load-timeout", "3", "--timeout-multiplier", "2", "--ops", "relu", "--ops", "aten.add.Tensor"]
    assert main([*RUN, *options]) == 0
    assert (seen[0].threads, seen[0].isolation, seen[0].limits.memory_bytes) == (2, "none", 2 << 30)
    job = jobs_seen[0]
    assert (job.effort, job.measured, job.deadlines.load_seconds, job.deadlines.check_seconds) == (
        "quick",
        False,
        6,
        120,
    )
    assert {item.case.operator for item in jobs_seen} == {RELU, ADD}


def test_no_isolation_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    main([*RUN, "--isolation", "none"])
    assert "warning: --isolation none" in capsys.readouterr().err


def test_ctrl_c_keeps_what_is_done_and_exits_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def press(job: Job) -> Verdict:
        if job.case is CASES[2]:
            raise KeyboardInterrupt
        return making.AGREES

    judge_by(monkeypatch, press)
    assert main(RUN) == 130
    out, err = capsys.readouterr()
    assert "2/2 agrees" in out
    assert "--resume --run-id x" in err
    judge_by(monkeypatch, lambda job: making.AGREES)
    jobs_seen.clear()
    assert main([*RUN, "--resume"]) == 0
    assert len(jobs_seen) == 2


def test_ctrl_c_before_the_run_has_begun_exits_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def press(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("torchstone.runs.run.collect", press)
    assert main(RUN) == 130
    assert "interrupted" in capsys.readouterr().err


def test_an_error_of_ours_is_one_line_with_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(job: Job) -> Verdict:
        raise DeviceUnavailableError("the device\nis gone")

    judge_by(monkeypatch, fail)
    assert main(RUN) == 3
    assert "error: the device is gone\n" in capsys.readouterr().err


def test_show_tells_the_same_as_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    main([*RUN[:3], "--backend", "few", "--device", "cpu", "--run-id", "x"])
    first = capsys.readouterr().out
    assert main(["show", "torchstone_runs/x"]) == 0
    out, err = capsys.readouterr()
    assert out == first
    assert "warning: kernels/add" in err
    assert main(["show", "torchstone_runs/x", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["operators_missing"] == 1


def test_show_tells_all_about_single_cases(capsys: pytest.CaptureFixture[str]) -> None:
    main(RUN)
    capsys.readouterr()
    assert main(["show", "torchstone_runs/x", "--case", "[2]"]) == 0
    assert "  verdict           agrees" in capsys.readouterr().out
    assert main(["show", "torchstone_runs/x", "--case", "aten", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["records"]) == len(CASES)
    assert main(["show", "torchstone_runs/x", "--case", "no such case"]) == 2
    assert "no case of this run contains" in capsys.readouterr().err


def test_show_of_something_else_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "nowhere"]) == 2
    assert "error: nowhere is no run folder" in capsys.readouterr().err


def test_list_tells_names_and_operators(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "suites"]) == 0
    assert "smoke" in capsys.readouterr().out.split()
    assert main(["list", "backends"]) == 0
    assert {"aten", "directory", "pregenerated"} <= set(capsys.readouterr().out.split())
    assert main(["list", "operators", "--suite", "listed"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"{ADD}\t2 cases\t0 timed"


def test_manifests_are_compared_like_diff(capsys: pytest.CaptureFixture[str]) -> None:
    main(RUN)
    main([*RUN[:-1], "y", "--effort", "quick"])
    capsys.readouterr()
    assert main(["diff-manifests", "torchstone_runs/x", "torchstone_runs/x/manifest.json"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["diff-manifests", "torchstone_runs/x", "torchstone_runs/y"]) == 1
    assert capsys.readouterr().out == "configuration.effort: normal -> quick\n"


def test_the_help_line_of_each_command_is_the_commands_own() -> None:
    for name, (path, text) in COMMANDS.items():
        module, _, attribute = path.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert command.name == name
        assert command.get_short_help_str(limit=200) == text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--effort", "huge"], "huge"),
        (["run", "--memory-limit", "lots"], "'lots' is no size"),
        (["run", "--ops", "add,,sub"], "empty name"),
        (["run", "--threads", "0"], "0"),
        (["rnu"], "No such command 'rnu'"),
        (["run", "--resume"], "--resume needs --run-id"),
        (["list", "things"], "things"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert said in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "size"), [("8GiB", 8 << 30), ("1.5g", 3 << 29), ("2 MB", 2_000_000), ("1024", 1024), ("7KiB", 7168)]
)
def test_sizes_have_units(text: str, size: int) -> None:
    context = click.Context(click.Command("run"))
    assert size_in_bytes(context, click.Option(["--memory-limit"]), text) == size


def test_an_empty_summary_is_no_success() -> None:
    assert exit_code(make_report([]).summary, interrupted=False, fail_on_missing=False) == 1


def _plan_and_records() -> tuple[Any, list[Record]]:
    offers = {name: making.implementation(name) for name in (RELU, ADD)}
    plan = make_plan(CASES, offers, Terms("all"))
    return plan, [making.record(of=case) for case in CASES]


def test_plain_progress_tells_counts_and_time_left_now_and_then() -> None:
    moments = iter([0.0, 1.0, 6.0, 7.0, 12.0])
    stream = io.StringIO()
    progress = PlainProgress(stream, JUDGED_CASES, clock=lambda: next(moments))
    plan, records = _plan_and_records()
    progress.planned(plan, Path("runs/x"))
    for record in records:
        progress.recorded(record)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "4 cases, in runs/x"
    assert lines[1] == "2/4 judged, 2 agree, 0 do not, about 6 s left"
    assert len(lines) == 3


def test_live_progress_shows_warnings_as_text() -> None:
    stream = io.StringIO()
    progress = LiveProgress(stream, JUDGED_CASES)
    plan, records = _plan_and_records()
    progress.planned(plan, Path("runs/x"))
    progress.warned("[bold]odd[/bold]\x1b[2J")
    for record in records:
        progress.recorded(record)
    progress.stop()
    assert "warning: [bold]odd[/bold]\\x1b[2J" in stream.getvalue()


def test_audit_suite_tells_what_adversaries_pass_and_fails_without_an_excuse(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["audit-suite", "smoke", "--ops", "mul", "--dtype", "f16", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cases"] == 4
    assert found["unjudged"] == {}
    assert [finding["case"] for finding in found["findings"]] == ["T([3, 0], f16), T([3, 1], f16)"]
    assert all(finding["excuse"] for finding in found["findings"])
    assert main(["audit-suite", "smok"]) == 2


def test_long_work_says_how_much_is_done_and_how_long_the_rest_takes() -> None:
    moments = iter([0.0, 4.0, 6.0, 7.0])
    stream = io.StringIO()
    count = _PlainCount(stream, "cases audited", lambda: next(moments))
    for done in (1, 2, 3):
        count.tell(done, 8)
    assert stream.getvalue() == "2/8 cases audited, about 18 s left\n"
