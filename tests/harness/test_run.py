"""A run over many pairs keeps every result: through kills, interrupts, timeouts, broken runners and torn lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from harness import fake_program
from harness.trees import SOURCE, compared, failed, write_pairs, write_tree
from torchstone.benchmarks import BenchmarkConfig
from torchstone.errors import InfrastructureError, UsageError
from torchstone.harness.pair_runner import FakePairRunner, PairOrder, PairRunner
from torchstone.harness.plan import PairsPlan
from torchstone.harness.request import PairsRequest, duration_seconds
from torchstone.harness.results import Comparison, PairRecord
from torchstone.harness.run import PairsResult, read_pairs, run_pairs
from torchstone.runs.folder import read_manifest

PROGRAM = Path(fake_program.__file__)
NAMES = ("ch1/a", "ch1/b", "ch2/a")


class Notebook:
    """Writes down what a run says."""

    def __init__(self) -> None:
        self.records: list[PairRecord] = []
        self.warnings: list[str] = []
        self.plan: PairsPlan | None = None

    def planned(self, plan: PairsPlan, folder: Path) -> None:
        self.plan = plan

    def recorded(self, record: PairRecord) -> None:
        self.records.append(record)

    def warned(self, message: str) -> None:
        self.warnings.append(message)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_pairs(tmp_path / "tree", *NAMES)


def request(tree: Path, **more: object) -> PairsRequest:
    given = {"root": tree, "device": "cpu", "output_dir": tree.parent / "artifacts", "run_id": "x", **more}
    return PairsRequest(**given)  # type: ignore[arg-type]


def run(asked: PairsRequest, runner: PairRunner, notes: Notebook | None = None) -> PairsResult:
    return run_pairs(asked, notes or Notebook(), lambda device: runner)


def answers(names: tuple[str, ...] = NAMES) -> dict[str, Comparison]:
    return {name: compared(name) for name in names}


def test_every_pair_is_ordered_as_asked_recorded_and_reported(tree: Path, tmp_path: Path) -> None:
    fake, notes = FakePairRunner(answers()), Notebook()
    overrides = BenchmarkConfig(iterations=7)
    result = run(request(tree, overrides=overrides, latest=tmp_path, regression_threshold_pct=8.0), fake, notes)
    assert [order.name for order in fake.orders] == list(NAMES)
    first = fake.orders[0]
    assert (first.root, first.baseline) == (tree, tree / "ch1" / "baseline_a.py")
    assert (first.device, first.overrides, first.regression_threshold_pct) == ("cpu", overrides, 8.0)
    assert first.artifacts == result.folder / "pairs" / "ch1" / "a"
    assert len({order.seed for order in fake.orders}) == 1
    assert {path.name for path in result.folder.iterdir()} >= {"records.jsonl", "manifest.json", "plan.json"}
    for name in ("benchmark_test_results.json", "benchmark_test_results.md"):
        assert (result.folder / name).read_bytes() == (tmp_path / name).read_bytes()
    stored = read_pairs(result.folder)
    assert stored.report == result.report
    assert [record.name for record in stored.report.pairs] == list(NAMES)
    assert [record.baseline_path for record in notes.records][:1] == ["ch1/baseline_a.py"]
    manifest = read_manifest(result.folder)
    assert manifest.seeds == {"benchmarks": str(first.seed)}
    assert manifest.configuration["settings"]["overrides"] == {"iterations": 7}
    assert {record.manifest_key for record in notes.records} == {manifest.key}


def test_the_seed_is_the_one_asked_for(tree: Path) -> None:
    fake = FakePairRunner(answers())
    run(request(tree, overrides=BenchmarkConfig(seed=42)), fake)
    assert {order.seed for order in fake.orders} == {42}


def test_targets_choose_and_the_problems_of_all_files_are_told(tree: Path) -> None:
    write_tree(tree, ["ch2/baseline_alone.py"])
    fake, notes = FakePairRunner(answers()), Notebook()
    run(request(tree, targets=("ch2",)), fake, notes)
    assert [order.name for order in fake.orders] == ["ch2/a"]
    assert any("ch2/baseline_alone.py: has no optimized file" in warning for warning in notes.warnings)


def test_only_the_first_of_many_problems_are_told_one_by_one(tree: Path) -> None:
    write_tree(tree, [f"ch2/baseline_alone{number}.py" for number in range(15)])
    notes = Notebook()
    result = run(request(tree), FakePairRunner(answers()), notes)
    assert len(notes.warnings) == 11
    assert notes.warnings[-1].startswith("5 more files are in no pair")
    assert len(result.report.problems) == 15


def test_a_tree_without_pairs_is_a_usage_error_and_leaves_no_folder(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree", ["ch1/baseline_a.py"])
    with pytest.raises(UsageError, match=r"no pair under .* 1 files could not be paired"):
        run(request(tmp_path / "tree"), FakePairRunner({}))
    assert not (tmp_path / "artifacts").exists()


def test_a_resumed_run_keeps_failures_and_runs_only_changed_and_new_pairs(tree: Path) -> None:
    first = FakePairRunner({**answers(), "ch1/b": failed("ch1/b")})
    before = run(request(tree), first)
    (tree / "ch2" / "optimized_a.py").write_text(SOURCE + "# changed\n")
    write_pairs(tree, "ch3/a")
    left_behind = before.folder / "pairs" / "ch2" / "a" / "log.txt"
    left_behind.parent.mkdir(parents=True)
    left_behind.write_text("of the old file")
    second = FakePairRunner(answers((*NAMES, "ch3/a")))
    after = run(request(tree, resume=True), second)
    assert [order.name for order in second.orders] == ["ch2/a", "ch3/a"]
    assert {order.seed for order in second.orders} == {order.seed for order in first.orders}
    assert [(record.name, record.status) for record in after.report.pairs] == [
        ("ch1/a", "succeeded"),
        ("ch1/b", "failed"),
        ("ch2/a", "succeeded"),
        ("ch3/a", "succeeded"),
    ]
    assert len((after.folder / "superseded.jsonl").read_bytes().splitlines()) == 1
    assert not left_behind.exists()


def test_the_folder_of_a_pair_is_its_own_even_where_a_chapter_has_its_name(tmp_path: Path) -> None:
    tree = write_pairs(tmp_path / "tree", "labs/moe", "labs/moe/routing")
    fake = FakePairRunner(answers(("labs/moe", "labs/moe/routing")))
    run(request(tree), fake)
    outer, inner = (order.artifacts for order in fake.orders)
    assert not inner.is_relative_to(outer), "a resumed run removes what an unfinished pair left behind"


def test_a_run_that_is_complete_starts_no_runner(tree: Path) -> None:
    run(request(tree), FakePairRunner(answers()))

    def refuse(device: str) -> PairRunner:
        raise AssertionError("there was nothing to run")

    assert run_pairs(request(tree, resume=True), Notebook(), refuse).report.summary.successful == 3


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"overrides": BenchmarkConfig(iterations=9)}, "--iterations was not given, now 9"),
        ({"overrides": BenchmarkConfig(enable_profiling=False)}, "--no-profile was not given, now given"),
        ({"regression_threshold_pct": 1.0}, "--regression-threshold was 5.0, now 1.0"),
        ({"targets": ("ch1",)}, "--targets was not given, now ch1"),
    ],
)
def test_a_resumed_run_has_the_configuration_of_its_beginning(
    changed: Mapping[str, object], said: str, tree: Path
) -> None:
    run(request(tree), FakePairRunner(answers()))
    with pytest.raises(UsageError, match=said):
        run(request(tree, resume=True, **changed), FakePairRunner({}))


def test_a_resumed_run_may_have_other_timeouts_and_jobs(tree: Path) -> None:
    run(request(tree), FakePairRunner(answers()))
    longer = BenchmarkConfig(timeout_multiplier=3.0)
    assert run(request(tree, resume=True, overrides=longer, jobs=2), FakePairRunner({})).report.summary.is_fine


def test_a_torn_last_line_costs_only_that_pair(tree: Path) -> None:
    folder = run(request(tree), FakePairRunner(answers())).folder
    journal = folder / "records.jsonl"
    journal.write_bytes(journal.read_bytes()[:-40])
    fake, notes = FakePairRunner(answers()), Notebook()
    result = run(request(tree, resume=True), fake, notes)
    assert [order.name for order in fake.orders] == ["ch2/a"]
    assert any("torn" in warning for warning in notes.warnings)
    assert result.report.summary.successful == 3


class TimedRunner:
    """Every pair takes as long as it is told; counts how many are under way at once."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._lock = seconds, threading.Lock()
        self.under_way = self.most = 0
        self.closed = False

    def run(self, order: PairOrder) -> Comparison:
        with self._lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        time.sleep(self._seconds)
        with self._lock:
            self.under_way -= 1
        return compared(order.name)

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("jobs", [1, 3])
def test_as_many_pairs_are_under_way_as_there_are_jobs(jobs: int, tree: Path) -> None:
    runner = TimedRunner(0.1)
    result = run(request(tree, jobs=jobs), runner)
    assert runner.most == jobs
    assert runner.closed
    assert result.report.summary.successful == 3


def test_after_the_suite_timeout_no_pair_begins_and_the_rest_is_not_run(tree: Path) -> None:
    notes = Notebook()
    result = run(request(tree, suite_timeout_seconds=0.5), TimedRunner(0.6), notes)
    assert result.out_of_time
    assert not result.interrupted
    assert (result.report.summary.successful, result.report.summary.not_run) == (1, 2)
    assert not result.report.summary.is_fine
    assert [pair.name for pair in result.report.not_run] == ["ch1/b", "ch2/a"]
    (told,) = [warning for warning in notes.warnings if "suite timeout" in warning]
    assert "2 pairs are not run. Go on with: torchstone pairs run --resume --run-id x --output-dir" in told
    again = run(request(tree, resume=True), FakePairRunner(answers()))
    assert (again.report.summary.successful, again.report.summary.not_run) == (3, 0)


class BrokenRunner:
    """Raises on one pair."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def run(self, order: PairOrder) -> Comparison:
        if order.name == "ch1/b":
            raise self._error
        return compared(order.name)


def test_a_bug_of_the_runner_costs_one_pair_and_is_tried_again(tree: Path) -> None:
    result = run(request(tree), BrokenRunner(KeyError("lost")))
    summary = result.report.summary
    assert (summary.successful, summary.failed, summary.harness_errors) == (2, 1, 1)
    (bad,) = [record for record in result.report.pairs if record.harness_error]
    assert "the harness failed, not the benchmark: KeyError: 'lost'" in bad.comparison.baseline.errors[0]
    fake = FakePairRunner(answers())
    assert run(request(tree, resume=True), fake).report.summary.successful == 3
    assert [order.name for order in fake.orders] == ["ch1/b"]


def test_a_machine_that_refuses_ends_the_run_and_keeps_what_is_done(tree: Path) -> None:
    notes = Notebook()
    with pytest.raises(InfrastructureError, match="off the bus"):
        run(request(tree), BrokenRunner(InfrastructureError("the GPU fell off the bus.")), notes)
    assert [record.name for record in notes.records] == ["ch1/a"]
    command = "Go on with: torchstone pairs run --resume --run-id x"
    assert any(f"1 pair is kept. {command}" in warning for warning in notes.warnings)
    stored = read_pairs(tree.parent / "artifacts" / "x")
    assert (stored.report.summary.successful, stored.report.summary.not_run) == (1, 2)


def test_a_metric_that_is_not_finite_becomes_a_note_and_the_journal_stays_readable(tree: Path) -> None:
    side = msgspec.structs.replace(compared("").optimized, custom_metrics={"loss": float("nan"), "tokens": 3.0})
    odd = msgspec.structs.replace(compared("ch1/b"), optimized=side)
    result = run(request(tree), FakePairRunner({**answers(), "ch1/b": odd}))
    read = read_pairs(result.folder).report.pairs[1].comparison.optimized
    assert read.custom_metrics == {"tokens": 3.0}
    assert read.notes == ("custom metric 'loss' is nan and left out",)


@pytest.mark.parametrize("config", [{"shape": object()}, {"text": "\ud800"}])
def test_a_result_that_json_cannot_hold_is_a_failure_of_the_harness(config: dict[str, object], tree: Path) -> None:
    side = msgspec.structs.replace(compared("").optimized, config=config)
    odd = msgspec.structs.replace(compared("ch1/b"), optimized=side)
    result = run(request(tree), FakePairRunner({**answers(), "ch1/b": odd}))
    read = read_pairs(result.folder).report.pairs
    assert [bool(record.harness_error) for record in read] == [False, True, False]
    assert "cannot be kept as JSON" in read[1].harness_error


def test_reports_that_cannot_be_copied_are_told_and_the_run_stands(tree: Path, tmp_path: Path) -> None:
    notes = Notebook()
    result = run(request(tree, latest=tmp_path / "nowhere"), FakePairRunner(answers()), notes)
    assert result.report.summary.is_fine
    assert any("but not in" in warning for warning in notes.warnings)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("4h", 14400), ("90m", 5400), ("3600", 3600), ("1h30m", 5400), ("2.5 h", 9000), ("45s", 45), ("10min", 600)],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "4x", "-4h", "0", "4h junk", "1 2", "nan", "inf"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        duration_seconds(text)


# ---- in a real process


def start(tree: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), "pairs", "run", str(tree), "--device", "cpu", "--run-id", "x", *arguments]
    return subprocess.Popen(
        command, cwd=tree.parent, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def recorded(tree: Path) -> list[str]:
    path = tree.parent / "artifacts" / "x" / "records.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["comparison"]["name"] for line in lines]


def wait_for_records(tree: Path, count: int) -> None:
    until = time.monotonic() + 30
    while len(recorded(tree)) < count:
        assert time.monotonic() < until, f"only {recorded(tree)}"
        time.sleep(0.02)


def test_what_was_recorded_survives_kill_9_and_the_rest_is_run_by_resume(tmp_path: Path) -> None:
    names = [f"ch{number}/slow{number}" for number in range(1, 7)]
    tree = write_pairs(tmp_path / "tree", *names)
    with start(tree) as process:
        wait_for_records(tree, 2)
        process.kill()
    before = recorded(tree)
    assert 2 <= len(before) < 6
    with start(tree, "--resume", "--jobs", "3", "--json") as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert [record["comparison"]["name"] for record in found["pairs"]] == names
    assert sorted(recorded(tree)) == names, "each pair is there once"
    assert recorded(tree)[: len(before)] == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_is_done_and_says_how_to_go_on(number: signal.Signals, tmp_path: Path) -> None:
    tree = write_pairs(tmp_path / "tree", "ch1/a", "ch2/stuck", "ch3/a")
    with start(tree) as process:
        wait_for_records(tree, 1)
        time.sleep(0.3)
        began = time.monotonic()
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert time.monotonic() - began < 10
    assert "interrupted. Go on with: torchstone pairs run --resume --run-id x" in err
    assert "Traceback" not in err
    assert recorded(tree) == ["ch1/a"]
    assert "Not run: 2" in out
    assert "| ch1/a" not in out
    page = (tmp_path / "artifacts" / "x" / "benchmark_test_results.md").read_text()
    assert "- **Not run:** 2" in page
