"""`-x`, `-k`, `--last-failed` and `--resume`: the commands in this process, with a fake executor behind them."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import made_records as making
from torchstone import registry
from torchstone.backends import BackendOptions, ListedBackend
from torchstone.cli import main
from torchstone.cli.exit_codes import exit_code
from torchstone.executors import ExecutorOptions, FakeExecutor
from torchstone.reports import make_report
from torchstone.runs import read_manifest, read_run
from torchstone.runs.failing_verdicts import fails
from torchstone.schema import Case, Deadlines, Job, Limits, Missing, Record, TimedOut, Unjudged, Verdict, encode
from torchstone.suites import ListedSuite

RELU, ADD, SUM = "aten.relu.default", "aten.add.Tensor", "aten.sum.default"
CASES = [making.case(operator, size) for operator in (RELU, ADD) for size in (1, 2, 3)]
MISSING = making.case(SUM, 1)
AGREES, DISAGREES = making.VERDICTS[0], making.VERDICTS[1]
Decide = Callable[[Job], Verdict]

options_seen: list[ExecutorOptions] = []
folders_seen: list[Path | None] = []
jobs_seen: list[Job] = []
decide: Decide = lambda job: AGREES  # noqa: E731


def make_suite() -> ListedSuite:
    return ListedSuite([*CASES, MISSING])


class Kernels(ListedBackend):
    def __init__(self, options: BackendOptions) -> None:
        folders_seen.append(options.kernels_dir)
        super().__init__(making.implementation(name) for name in (RELU, ADD))


class Watched(FakeExecutor):
    def __init__(self, options: ExecutorOptions) -> None:
        super().__init__(decide)
        options_seen.append(options)

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        jobs_seen.extend(jobs)
        return super().run(list(jobs))


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(registry.suites._builtins, "listed", f"{__name__}:make_suite")
    monkeypatch.setitem(registry.backends._builtins, "kernels", f"{__name__}:Kernels")
    monkeypatch.setitem(registry.executors._builtins, "local", f"{__name__}:Watched")
    monkeypatch.setitem(registry.executors._builtins, "other", f"{__name__}:Watched")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def judge_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Decide], None]:
    """Sets the verdicts from now on, and forgets what was seen."""

    def choose(verdict: Decide) -> None:
        monkeypatch.setattr(importlib.import_module(__name__), "decide", verdict)
        for seen in (options_seen, folders_seen, jobs_seen):
            seen.clear()  # type: ignore[attr-defined]

    choose(lambda job: AGREES)
    return choose


def wrong_on(*wrong: Case) -> Decide:
    return lambda job: DISAGREES if job.case in wrong else AGREES


RUN = ["run", "--suite", "listed", "--backend", "kernels", "--device", "cpu"]


def records(run_id: str) -> list[Case]:
    return [record.case for record in read_run(Path("torchstone_runs") / run_id).records]


def judged() -> list[Case]:
    return [job.case for job in jobs_seen]


# -x


def test_fail_fast_stops_after_the_first_failure_keeps_what_is_done_and_says_how_to_go_on(
    judge_by: Callable[[Decide], None], capsys: pytest.CaptureFixture[str]
) -> None:
    judge_by(wrong_on(CASES[1], CASES[3]))
    assert main([*RUN, "--run-id", "x", "-x", "--json"]) == 1
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (told["stopped_early"], told["interrupted"], told["exit_code"]) == (True, False, 1)
    assert told["summary"]["counts"] == {"agrees": 1, "disagrees": 1, "missing": 1}
    assert (
        err.splitlines()[-1] == "stopped early (-x): 4 cases not judged; go on with: torchstone run --resume --run-id x"
    )

    judge_by(wrong_on(CASES[3]))
    assert main(["run", "--resume", "--run-id", "x", "--fail-fast"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("stopped early (-x): 2 cases not judged")
    assert judged() == CASES[2:]
    assert main(["run", "--resume"]) == 1
    assert "stopped early" not in capsys.readouterr().err
    assert sorted(case.key for case in records("x")) == sorted(case.key for case in (*CASES, MISSING))


def test_fail_fast_says_nothing_where_nothing_was_left_or_nothing_failed(
    judge_by: Callable[[Decide], None], capsys: pytest.CaptureFixture[str]
) -> None:
    judge_by(wrong_on(CASES[-1]))
    assert main([*RUN, "-x"]) == 1
    assert "stopped early" not in capsys.readouterr().err
    judge_by(wrong_on())
    assert main([*RUN, "-x"]) == 0
    assert "stopped early" not in capsys.readouterr().err


def test_the_way_to_go_on_names_another_output_folder(
    judge_by: Callable[[Decide], None], capsys: pytest.CaptureFixture[str]
) -> None:
    judge_by(wrong_on(CASES[0]))
    main([*RUN, "--run-id", "x", "--output-dir", "my runs", "-x"])
    assert capsys.readouterr().err.splitlines()[-1].endswith("--resume --run-id x --output-dir 'my runs'")


@pytest.mark.parametrize("verdict", making.VERDICTS, ids=lambda verdict: str(verdict)[:20])
@pytest.mark.parametrize("fail_on_missing", [False, True])
def test_what_fails_is_what_the_exit_code_says(verdict: Verdict, fail_on_missing: bool) -> None:
    summary = make_report([making.record(of=making.case(size=9)), making.record(verdict)]).summary
    code = exit_code(summary, interrupted=False, fail_on_missing=fail_on_missing)
    if not isinstance(verdict, Missing):
        assert fails(verdict) == (code != 0)
    assert fails(verdict, missing_too=fail_on_missing) == (code != 0)


# -k


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ("RELU", CASES[:3]),
        ("relu or sum and '[1]'", [*CASES[:3], MISSING]),
        ("(relu or add) and not ([1] or [2])", [CASES[2], CASES[5]]),
        ("not not add.tensor and [3]", [CASES[5]]),
        ('"T([2], f32)" and not add', [CASES[1]]),
    ],
)
def test_an_expression_chooses_cases_by_operator_and_arguments(
    expression: str, chosen: list[Case], judge_by: Callable[[Decide], None]
) -> None:
    assert main([*RUN, "--run-id", "x", "-k", expression]) in (0, 1)
    assert sorted(case.key for case in records("x")) == sorted(case.key for case in chosen)


def test_an_expression_is_applied_before_cases_are_sampled_and_may_leave_an_operator_out(
    judge_by: Callable[[Decide], None],
) -> None:
    assert main([*RUN, "--run-id", "x", "--ops", "relu,add", "-k", "add", "--topn", "1"]) == 0
    assert records("x") == [CASES[5]]


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("relu and", "column 9: expected a word, 'not' or '(', found the end. Here: relu and>>>"),
        ("(relu or add", "column 13: expected ')', found the end."),
        ("relu bf16", "column 6: expected 'and' or 'or', found 'bf16'. Here: relu >>>bf16"),
        ("relu or ) add", "column 9: expected a word, 'not' or '(', found ')'."),
        ("", "column 1: expected a word"),
        ("relu and 'T([2", "column 10: the quote ' is not closed."),
        ("relu and nowhere", "no case of suite 'listed' fits -k 'relu and nowhere'."),
    ],
)
def test_a_bad_expression_is_one_line_that_shows_where(
    expression: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RUN, "-k", expression]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1
    assert not Path("torchstone_runs").exists()


# --last-failed


def test_last_failed_judges_the_failed_cases_alone_with_the_options_of_their_run(
    judge_by: Callable[[Decide], None], capsys: pytest.CaptureFixture[str]
) -> None:
    unjudged = Unjudged("the judge died twice")
    judge_by(lambda job: unjudged if job.case == CASES[4] else wrong_on(CASES[1])(job))
    begun = ["--kernels-dir", "mine", "--effort", "quick", "--ops", "relu,add", "--sample", "6"]
    assert main([*RUN, "--run-id", "x", *begun]) == 3
    judge_by(wrong_on())
    assert main(["run", "--last-failed", "x", "--run-id", "y", "--threads", "2"]) == 0
    assert "judging what failed in torchstone_runs/x: 2 cases" in capsys.readouterr().err
    assert judged() == [CASES[1], CASES[4]]
    assert {job.effort for job in jobs_seen} == {"quick"}
    assert (folders_seen, options_seen[0].threads) == ([Path("mine").absolute()], 2)

    assert main(["run", "--last-failed", "torchstone_runs/x", "--ops", "add"]) == 0
    assert "1 of the 2 cases that failed are left out" in capsys.readouterr().err
    assert judged()[2:] == [CASES[4]]


def test_last_failed_of_a_run_without_failures_says_so_and_exits_0(
    judge_by: Callable[[Decide], None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RUN, "--run-id", "x"]) == 0
    capsys.readouterr()
    assert main(["run", "--last-failed", "x"]) == 0
    assert capsys.readouterr().out == "no case failed in torchstone_runs/x: there is nothing to judge again.\n"
    assert main(["run", "--last-failed", "x", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["exit_code"] == 0
    assert [path.name for path in Path("torchstone_runs").iterdir()] == ["x"]
    assert main(["run", "--last-failed", "x", "--fail-on-missing", "--run-id", "y"]) == 1
    assert records("y") == [MISSING]


def test_last_failed_can_itself_be_stopped_and_resumed(judge_by: Callable[[Decide], None]) -> None:
    judge_by(wrong_on(*CASES[1:4]))
    assert main([*RUN, "--run-id", "x"]) == 1
    assert main(["run", "--last-failed", "x", "--run-id", "y", "-x"]) == 1
    judge_by(wrong_on())
    assert main(["run", "--resume"]) == 1
    assert judged() == CASES[2:4]
    assert records("y") == CASES[1:4]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--last-failed", "y"], "unknown run 'y': torchstone_runs has no such folder. Runs there: x."),
        (["--last-failed", "."], ". is not a run folder"),
        (["--last-failed", "x", "--resume"], "Give one of them"),
        (["--last-failed", "x", "--suite", "smoke"], "no case that failed (1) is in this selection of suite 'smoke'"),
        (["--last-failed", "x", "-k", "add"], "no case that failed (1) is in this selection of suite 'listed'"),
    ],
)
def test_last_failed_that_cannot_be_done_is_one_line(
    arguments: list[str], said: str, judge_by: Callable[[Decide], None], capsys: pytest.CaptureFixture[str]
) -> None:
    judge_by(wrong_on(CASES[2]))
    main([*RUN, "--run-id", "x"])
    capsys.readouterr()
    assert main(["run", *arguments]) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


# --resume


def stop_at(case: Case) -> Decide:
    def press(job: Job) -> Verdict:
        if job.case is case:
            raise KeyboardInterrupt
        return AGREES

    return press


def test_resume_alone_goes_on_with_every_option_the_run_was_begun_with(
    judge_by: Callable[[Decide], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_by(stop_at(CASES[1]))
    options = ["--ops", "relu", "--kernels-dir", "mine", "--effort", "quick", "--no-measure", "--threads", "3"]
    options += ["--judges", "2", "--executor", "other", "--isolation", "none", "--memory-limit", "2GiB"]
    options += ["--load-timeout", "3", "--timeout-multiplier", "2", "-k", "relu", "--require-authored-kernel"]
    options += ["--try-every-case"]
    assert main([*RUN, "--run-id", "x", *options]) == 130
    first = (list(options_seen), folders_seen[0], jobs_seen[0])
    folder = Path("torchstone_runs/x").absolute()
    before = read_manifest(folder).configuration
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")

    judge_by(wrong_on())
    assert main(["run", "--resume", "--run-id", "x", "--output-dir", str(folder.parent)]) == 0
    assert "circumstances differ" not in capsys.readouterr().err
    assert judged() == CASES[1:3]
    assert read_manifest(folder).configuration == before
    assert options_seen[0].judges_per_device == 2
    assert (options_seen[0].limits, options_seen[0].threads) == (first[0][0].limits, 3)
    assert folders_seen[0] == folder.parents[1] / "mine"
    job = jobs_seen[0]
    assert (job.effort, job.deadlines, job.measured, job.require_authored, job.try_every_case) == (
        first[2].effort,
        Deadlines(6, 120, 120, 120),
        False,
        True,
        True,
    )


def test_cases_that_were_not_tried_are_done_unless_every_case_shall_be(
    judge_by: Callable[[Decide], None],
) -> None:
    late, not_tried = TimedOut("compile", 60.0, 60.0), TimedOut("compile", 60.0, 0.0, "not tried")
    judge_by(lambda job: late if job.case in CASES[:2] else not_tried if job.case is CASES[2] else AGREES)
    assert main([*RUN, "--run-id", "x"]) == 1
    judge_by(wrong_on())
    assert main(["run", "--resume", "--run-id", "x"]) == 1
    assert judged() == []
    assert main(["run", "--resume", "--run-id", "x", "--try-every-case"]) == 1
    assert judged() == [CASES[2]]
    assert records("x").count(CASES[2]) == 1


def test_resume_takes_the_newest_unfinished_run_and_says_which(
    judge_by: Callable[[Decide], None], capsys: pytest.CaptureFixture[str]
) -> None:
    judge_by(stop_at(CASES[2]))
    for number, name in enumerate(("z", "y", "x")):
        main([*RUN, "--run-id", name, "--ops", "relu,add"])
        os.utime(f"torchstone_runs/{name}/manifest.json", (number, number))
    Path("torchstone_runs/damaged").mkdir()
    Path("torchstone_runs/damaged/manifest.json").write_text("{}")
    Path("torchstone_runs/damaged/records.jsonl").write_text("{}\n{}\n")
    judge_by(wrong_on())
    for name in ("x", "y", "z"):
        capsys.readouterr()
        assert main(["run", "--resume"]) == 0
        said = f"going on with torchstone_runs/{name}, in which 2 of 6 cases are judged"
        assert capsys.readouterr().err.splitlines()[0] == said
    assert main(["run", "--resume"]) == 2
    assert "there is no unfinished run in torchstone_runs" in capsys.readouterr().err


def test_a_run_with_unjudged_cases_is_unfinished(judge_by: Callable[[Decide], None]) -> None:
    judge_by(lambda job: Unjudged("no") if job.case is CASES[0] else AGREES)
    assert main([*RUN, "--run-id", "x"]) == 3
    judge_by(wrong_on())
    assert main(["run", "--resume"]) == 0
    assert judged() == [CASES[0]]


def test_options_given_to_resume_must_agree_or_be_ones_that_may_change(
    judge_by: Callable[[Decide], None], capsys: pytest.CaptureFixture[str]
) -> None:
    judge_by(stop_at(CASES[1]))
    begun = ["--run-id", "x", "--load-timeout", "3", "--check-timeout", "4", "--memory-limit", "2GiB"]
    main([*RUN, *begun, "--process-limit", "9"])
    capsys.readouterr()
    judge_by(stop_at(CASES[2]))
    for changed, said in ((["--effort", "quick"], "effort was normal, now quick"), (["-k", "add"], "-k was")):
        assert main(["run", "--resume", *changed]) == 2
        assert said in capsys.readouterr().err
    assert main(["run", "--resume", "--check-timeout", "5", "--judges", "2", "--memory-limit", "1GiB"]) == 130
    assert jobs_seen[0].deadlines == Deadlines(load_seconds=3, check_seconds=5)
    assert (options_seen[-1].limits, options_seen[-1].judges_per_device) == (Limits(1 << 30, processes=9), 2)
    judge_by(wrong_on())
    assert main([*RUN, *begun, "--process-limit", "9", "--resume"]) == 0
    assert (jobs_seen[0].deadlines.check_seconds, options_seen[0].limits.processes) == (4, 9)


def test_a_case_of_its_own_is_remembered(judge_by: Callable[[Decide], None]) -> None:
    judge_by(wrong_on(CASES[1]))
    case = ["--case", encode(CASES[1]).decode(), "--backend", "kernels", "--device", "cpu"]
    assert main(["run", *case, "--run-id", "x"]) == 1
    judge_by(wrong_on())
    assert main(["run", "--resume", "--run-id", "x"]) == 1
    assert main(["run", "--last-failed", "x"]) == 0
    assert judged() == [CASES[1]]


def test_a_run_that_was_killed_at_once_begins_as_asked(
    judge_by: Callable[[Decide], None], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("torchstone_runs/x").mkdir(parents=True)
    assert main([*RUN, "--run-id", "x", "--resume"]) == 0
    assert "torchstone_runs/x has no options to remember" in capsys.readouterr().err
    assert len(judged()) == len(CASES)


def test_a_manifest_with_options_of_another_version_is_named(
    judge_by: Callable[[Decide], None], capsys: pytest.CaptureFixture[str]
) -> None:
    main([*RUN, "--run-id", "x"])
    path = Path("torchstone_runs/x/manifest.json")
    path.write_text(path.read_text().replace('"effort": "normal"', '"effort": "endless"'))
    assert main(["run", "--resume", "--run-id", "x"]) == 3
    assert "has options that this torchstone does not know" in capsys.readouterr().err
