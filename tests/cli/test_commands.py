"""The commands in this process, with a fake executor behind them."""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import msgspec
import pytest

import made_records as making
from torchstone import registry
from torchstone.backends import BackendOptions, ListedBackend, Problem
from torchstone.cli import COMMANDS, main
from torchstone.cli.exit_codes import exit_code
from torchstone.cli.parameters import size_in_bytes
from torchstone.cli.progress import JUDGED_CASES, LiveProgress, PlainProgress, Tally, _PlainCount
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


class OtherKernels(ListedBackend):
    """Offers less than the others, and names its implementations as they do."""

    def __init__(self, options: BackendOptions) -> None:
        super().__init__([making.implementation(RELU, "def f(x): return x + 0")])


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
    monkeypatch.setitem(registry.backends._builtins, "other", f"{__name__}:OtherKernels")
    monkeypatch.setitem(registry.executors._builtins, "local", f"{__name__}:Watched")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
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


def test_json_has_the_reason_of_every_failed_case(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judge_by(monkeypatch, lambda job: making.VERDICTS[3] if job.case is CASES[0] else making.AGREES)
    assert main([*RUN, "--json", "--durations", "2"]) == 1
    told = json.loads(capsys.readouterr().out)
    (failure,) = told["failures"]
    assert failure["operator"] == RELU
    assert (failure["case"], failure["verdict"], failure["stage"]) == ("T([1], f32)", "crashed", "check")
    assert failure["reason"] == "check: ValueError: no"
    assert told["durations"] == []
    assert told["summary"]["run"]["commands"] == ["torchstone " + " ".join([*RUN, "--json", "--durations", "2"])]


COMPARE = ["run", "--suite", "listed", "--backend", "all,other", "--device", "cpu", "--run-id", "x"]


def test_several_backends_are_judged_in_one_run_and_told_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(COMPARE) == 0
    out, _ = capsys.readouterr()
    assert [job.implementation.backend for job in jobs_seen] == ["all", "all", "other", "other", "all", "all"]
    assert f"| {RELU} | agrees | agrees  |" in out
    assert f"| {ADD}   | agrees | missing |" in out
    assert "2 backends, 2 operators · 8 cases: 6 agrees, 2 missing" in out
    assert main(["show", "torchstone_runs/x"]) == 0
    assert capsys.readouterr().out == out
    header = Path("torchstone_runs/x/operator_summary.csv").read_text().splitlines()[0]
    assert header.startswith("operator,backend,total_tests,")
    assert main(["show", "torchstone_runs/x", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    pairs = [(item["operator"], item["backend"]) for item in summary["operators"]]
    assert pairs == [(ADD, "all"), (ADD, "other"), (RELU, "all"), (RELU, "other")]
    assert [(item["backend"], item["operators_right"]) for item in summary["backends"]] == [("all", 2), ("other", 1)]
    assert main([*COMPARE[:-1], "y", "--fail-on-missing"]) == 1


def test_a_run_of_several_backends_is_resumed_as_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def press(job: Job) -> Verdict:
        if job.implementation.backend == "other":
            raise KeyboardInterrupt
        return making.AGREES

    judge_by(monkeypatch, press)
    assert main(COMPARE) == 130
    assert "not judged  4 of 8 cases" in capsys.readouterr().out
    judge_by(monkeypatch, lambda job: making.AGREES)
    jobs_seen.clear()
    assert main([*RUN, "--resume"]) == 2
    assert "backend was all,other, now all" in capsys.readouterr().err
    repeated = ["--backend", "other", "--backend", "all"]
    assert main([*COMPARE[:3], *repeated, *COMPARE[5:], "--resume"]) == 0
    assert len(jobs_seen) == 4
    assert "not judged  none of 8 cases" in capsys.readouterr().out


def test_one_backend_named_twice_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--backend", "all"]) == 0
    assert Path("torchstone_runs/x/operator_summary.csv").read_text().startswith("operator,total_tests,")
    assert "2 operators: 2 right" in capsys.readouterr().out


def test_verbose_tells_each_case_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "-v"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == f"agrees       {RELU} [listed]  T([1], f32)  0.00 s"
    assert len(lines) == 1 + len(CASES)


def test_junit_is_written_and_its_folder_is_looked_for_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--junit", "nowhere/junit.xml"]) == 2
    assert "there is no folder 'nowhere' to write into" in capsys.readouterr().err
    assert not Path("torchstone_runs").exists()
    assert main([*RUN, "--junit", "junit.xml"]) == 0
    assert ElementTree.parse("junit.xml").getroot().get("tests") == "4"
    assert main(["show", "torchstone_runs/x", "--junit", "again.xml"]) == 0
    assert Path("again.xml").read_bytes() == Path("junit.xml").read_bytes()


def test_a_roofline_is_written_as_svg_or_png_only(capsys: pytest.CaptureFixture[str]) -> None:
    main(RUN)
    capsys.readouterr()
    assert main(["show", "torchstone_runs/x", "--roofline", "roof.gif"]) == 2
    assert "'roof.gif' does not end in .svg or .png" in capsys.readouterr().err
    assert not Path("roof.gif").exists()


def test_without_the_extra_plots_the_tables_are_shown_without_a_picture(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torchstone.plots._PACKAGES", {"no_such_module": "altair"})
    main(RUN)
    capsys.readouterr()
    assert main(["show", "torchstone_runs/x", "--roofline", "roof.svg"]) == 0
    shown = capsys.readouterr()
    assert "| operator" in shown.out
    told = (
        "warning: roof.svg is not written: plots need the package altair. Install with: pip install torchstone[plots]"
    )
    assert told in shown.err.splitlines()
    assert not Path("roof.svg").exists()


def test_columns_decides_how_wide_the_tables_of_a_pipe_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main(RUN)
    assert "| operator   | verdicts   | speedup | µs | error/bound |\n" in capsys.readouterr().out
    main(["show", "torchstone_runs/x", "--wide"])
    assert "| reference µs |" in capsys.readouterr().out
    monkeypatch.delenv("COLUMNS")
    main(["show", "torchstone_runs/x"])
    assert "| reference µs |" in capsys.readouterr().out


def test_one_operator_is_not_written_in_the_plural(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--ops", "relu"]) == 0
    assert "1 operator: 1 right, 0 not right, 0 missing · 2 cases: 2 agrees" in capsys.readouterr().out


def test_what_is_judged_reaches_jobs_records_and_the_closing_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Job] = []
    judge_by(monkeypatch, lambda job: seen.append(job) or making.AGREES)  # type: ignore[func-returns-value]
    assert main([*RUN, "--shapes", "stated", "--non-finite", "ignore"]) == 0
    assert {(job.shapes, job.non_finite) for job in seen} == {("stated", "ignore")}
    assert "judged on stated shapes only" in capsys.readouterr().out.splitlines()[-1]
    lines = Path("torchstone_runs/x/records.jsonl").read_text().splitlines()
    assert {json.loads(line)["shapes"] for line in lines if '"kind":"record"' in line} == {"stated"}
    assert main([*RUN, "--resume", "--non-finite", "check"]) == 2
    assert "--non-finite was ignore, now check" in capsys.readouterr().err


def test_runs_from_before_these_options_can_be_resumed() -> None:
    assert main(RUN) == 0
    path = Path("torchstone_runs/x/manifest.json")
    manifest = json.loads(path.read_text())
    del manifest["configuration"]["shapes"], manifest["configuration"]["non_finite"]
    path.write_text(json.dumps(manifest))
    assert main([*RUN, "--resume"]) == 0


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
    def press(*arguments: Any, **more: Any) -> None:
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
    assert "not used: kernels/add: no entry point add_kernel_impl\n" in out
    assert not err
    assert main(["show", "torchstone_runs/x", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["summary"]["operators_missing"] == 1
    assert "warning: kernels/add" in err


def test_a_run_id_names_a_run_as_its_folder_does(capsys: pytest.CaptureFixture[str]) -> None:
    main([*RUN, "--run-id", "x"])
    first = capsys.readouterr().out
    Path("x").mkdir()  # a folder of the same name that is no run does not hide it
    assert main(["show", "x"]) == 0
    assert capsys.readouterr().out == first
    assert main(["diff-manifests", "x", "torchstone_runs/x"]) == 0
    assert main(["replay", "x"]) == 0
    assert "nothing to replay: every case agrees" in capsys.readouterr().out


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
    assert "error: unknown run 'nowhere'" in capsys.readouterr().err


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
        (["run", "--memory-limit", "lots"], "'lots' is not a size"),
        (["run", "--ops", "add,,sub"], "empty name"),
        (["run", "--threads", "0"], "0"),
        (["rnu"], "No such command 'rnu'"),
        (["run", "--quiet", "-v"], "--quiet or --verbose, not both"),
        (["run", "--backend", "aten,"], "empty name"),
        (["run", "--resume"], "there is no unfinished run in torchstone_runs"),
        (["run", "--kernels-dir", "mine"], "reads no folder. Add --backend directory"),
        (["run", "--model", "gpt"], "Add --backend llm"),
        (["run", "--gpu", "H100"], "Add --executor ray or modal"),
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
    now, stream = [0.0], io.StringIO()
    progress = PlainProgress(stream, JUDGED_CASES, clock=lambda: now[0])
    plan, records = _plan_and_records()
    progress.planned(plan, Path("runs/x"))
    for record, moment in zip(records, (1.0, 6.0, 7.0, 12.0), strict=True):
        now[0] = moment
        progress.recorded(msgspec.structs.replace(record, stage_seconds={"check": 1.0}))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "4 cases, in runs/x"
    assert lines[1] == "2/4 judged, 2 agree, 0 do not, about 6 s left"
    assert len(lines) == 3


def test_the_time_left_counts_a_timed_case_as_what_timed_cases_took() -> None:
    """Ten cases in plan: two timed ones of 30 s, eight checked ones of 1 s, two judges at work."""
    cases = [making.case(ADD, size=size, timed=size in (1, 10)) for size in range(1, 11)]
    plan = make_plan(cases, {ADD: making.implementation(ADD)}, Terms("all"))
    cost = {True: {"measure": 29.0, "check": 1.0}, False: {"check": 1.0}}
    made = ((case, making.record(of=case)) for case in cases)
    records = [msgspec.structs.replace(record, stage_seconds=cost[case.timed]) for case, record in made]
    now = [0.0]
    tally = Tally(plan, JUDGED_CASES, lambda: now[0])
    assert tally.seconds_left is None
    told: list[float | None] = []
    for record in records:
        now[0] += sum(record.stage_seconds.values()) / 2
        tally.add(record)
        told.append(tally.seconds_left)
    assert told == pytest.approx([15 + 8 * 0.5, *(15 + left * 0.5 for left in range(7, -1, -1)), 0.0])
    now[0] += 3
    assert tally.seconds_left == 0.0


def test_the_start_of_the_judges_is_not_taken_for_the_pace_of_cases() -> None:
    plan, records = _plan_and_records()
    now = [0.0]
    tally = Tally(plan, JUDGED_CASES, lambda: now[0])
    now[0] = 20.0
    tally.add(msgspec.structs.replace(records[0], stage_seconds={"wait": 19.0, "check": 1.0}))
    assert tally.seconds_left == pytest.approx(3.0)
    tally.total += 10  # cases that were found later
    assert tally.seconds_left == pytest.approx(13.0)


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
    moments = iter([0.0, 5.5, 5.6, 6.0, 7.0])
    stream = io.StringIO()
    count = _PlainCount(stream, "cases audited", lambda: next(moments))
    for done in (0, 1, 2, 3):
        count.tell(done, 8)
    assert stream.getvalue() == "1/8 cases audited, about 39 s left\n"
