"""Runs on recorded calls, with a fake executor: what the run is told, and what makes it another run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_run import Notebook, count

import made_records as making
from torchstone.backends import ListedBackend
from torchstone.cli import main
from torchstone.errors import UsageError
from torchstone.executors import FakeExecutor
from torchstone.runs import RunRequest, RunResult, execute
from torchstone.runs.request import check, configuration

CALLS = "Operator: aten.relu.default\n" + "".join(f"cnt: {size}, ((T([{size}], f16),), {{}})\n" for size in range(5))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "calls.txt"
    path.write_text(CALLS)
    return path


def run(source: Path, notebook: Notebook, *, resume: bool = False, largest: int | None = None) -> RunResult[object]:
    request = RunRequest(
        suite="traces",
        source=str(source),
        largest=largest,
        device="cpu",
        run_id="x",
        resume=resume,
        output_dir=source.parent / "runs",
    )
    backend = ListedBackend([making.implementation()])
    return execute(
        request, notebook, count, executor_factory=lambda _: FakeExecutor(lambda job: making.AGREES), backend=backend
    )


def test_a_run_says_what_the_suite_leaves_out(source: Path) -> None:
    notebook = Notebook()
    result = run(source, notebook)
    assert len(result.records) == 4
    assert notebook.warnings == ["suite 'torchbench' leaves out 1: synthetic: not recorded from a model"]


def test_only_the_largest_are_run(source: Path) -> None:
    result = run(source, Notebook(), largest=2)
    assert [record.case.occurrences for record in result.records] == [3, 4]


def test_the_same_content_goes_on_and_another_does_not(source: Path) -> None:
    run(source, Notebook())
    moved = source.rename(source.with_name("moved.txt"))
    assert len(run(moved, Notebook(), resume=True).records) == 4
    with pytest.raises(UsageError, match="--topn was not given, now 2"):
        run(moved, Notebook(), resume=True, largest=2)
    moved.write_text(CALLS + "cnt: 9, ((T([9], f16),), {})\n")
    with pytest.raises(UsageError, match="source was sha256:"):
        run(moved, Notebook(), resume=True)


def test_the_configuration_says_what_was_asked(source: Path) -> None:
    asked = RunRequest(suite="traces", source=str(source), largest=3, overhead_dominated=True)
    made = configuration(check(asked), "cpu")
    assert (made["suite"], made["source_path"], made["largest"]) == ("torchbench", str(source), 3)
    assert made["overhead_dominated"] is True
    assert str(made["source"]).startswith("sha256:")


def test_none_of_the_largest_is_refused() -> None:
    with pytest.raises(UsageError, match="largest is 0"):
        check(RunRequest(largest=0))


# The command line.


def test_operators_of_a_source_are_listed(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--source", "--alternative-torchbench-data-path"):
        assert main(["list", "operators", "--suite", "traces", option, str(source), "--topn", "3"]) == 0
        told = capsys.readouterr()
        assert told.out == "aten.relu.default\t3 cases\t0 timed\n"
        assert told.err == "left out: synthetic: not recorded from a model\t1\n"


def test_a_suite_is_audited_on_what_was_chosen(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["audit-suite", "torchbench", "--source", str(source), "--topn-inputs", "1", "--json"])
    assert json.loads(capsys.readouterr().out)["cases"] == 1


@pytest.mark.parametrize("command", [["run", "--suite", "smoke"], ["list", "operators"], ["audit-suite", "smoke"]])
@pytest.mark.parametrize(
    "option", [["--source", "x.txt"], ["--overhead-dominated"], ["--check-overhead-dominated-ops"]]
)
def test_smoke_has_no_use_for_a_source(
    command: list[str], option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, *option]) == 2
    assert "error: suite 'smoke' has no use for --" in capsys.readouterr().err
