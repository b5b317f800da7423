"""Whole runs with a fake executor: what is kept, what is refused, how they stop and go on."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

import made_records as making
from torchstone.backends import ListedBackend, Problem
from torchstone.errors import InfrastructureError, TorchstoneError, UsageError
from torchstone.executors import ExecutorOptions, FakeExecutor
from torchstone.runs import JobPlan, Observer, RunRequest, RunResult, execute, read_run
from torchstone.runs.journal import RECORDS, SUPERSEDED, read
from torchstone.runs.plan import CASE_RECORDS
from torchstone.schema import Implementation, Job, Missing, Record, RunDescription, Unjudged, Verdict, decode
from torchstone.suites import ListedSuite

RELU, ADD, SUM = "aten.relu.default", "aten.add.Tensor", "aten.sum.default"
CASES = [making.case(operator, size) for operator in (RELU, ADD) for size in (1, 2, 3)]


@dataclass
class Notebook:
    """An observer that remembers."""

    plans: list[JobPlan] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    left_out: int = 0

    def preparing(self, done: int, total: int, what: str) -> None:
        pass

    def planned(self, plan: JobPlan, folder: Path) -> None:
        self.plans.append(plan)

    def recorded(self, record: Record) -> None:
        self.records.append(record)

    def fewer(self, count: int) -> None:
        self.left_out += count

    def warned(self, message: str) -> None:
        self.warnings.append(message)


@dataclass(frozen=True)
class Counted:
    """The simplest report: how many records there were."""

    files: dict[str, bytes]


def count(records: tuple[Record, ...], problems: tuple[Problem, ...], description: RunDescription) -> Counted:
    return Counted({"count.txt": f"{len(records)} records, {len(problems)} problems\n".encode()})


def agree(job: Job) -> Verdict:
    return making.AGREES


def run(
    output: Path,
    decide: Callable[[Job], Verdict] = agree,
    observer: Observer | None = None,
    offered: Iterable[str] = (RELU, ADD),
    executor: object = None,
    **request: object,
) -> RunResult[Counted]:
    return execute(
        RunRequest(suite="listed", backend="listed", device="cpu", output_dir=output, **request),  # type: ignore[arg-type]
        observer or Notebook(),
        count,
        executor_factory=lambda options: executor or FakeExecutor(decide),  # type: ignore[arg-type,return-value]
        suite=ListedSuite(CASES),
        backend=ListedBackend(making.implementation(operator) for operator in offered),
    )


def test_a_run_leaves_records_manifest_sources_and_reports(tmp_path: Path) -> None:
    notebook = Notebook()
    result = run(tmp_path, observer=notebook, run_id="first")
    assert result.folder == tmp_path / "first"
    assert len(result.records) == 6
    assert result.interrupted is False
    assert list(result.records) == notebook.records == list(read(result.folder / RECORDS, CASE_RECORDS).records)
    assert (result.folder / "count.txt").read_text() == "6 records, 0 problems\n"
    stored = read_run(result.folder)
    assert stored.manifest.configuration["suite"] == "listed"
    sources = [decode(path.read_bytes(), Implementation) for path in (result.folder / "implementations").iterdir()]
    assert {item.key for item in sources} == {record.implementation.key for record in result.records}
    assert not list(result.folder.glob(".*.tmp"))


def test_the_executor_gets_the_options_of_the_request(tmp_path: Path) -> None:
    seen: list[ExecutorOptions] = []

    def factory(options: ExecutorOptions) -> FakeExecutor:
        seen.append(options)
        return FakeExecutor(agree)

    request = RunRequest(device="cpu", output_dir=tmp_path, threads=2, isolation="none")
    backend = ListedBackend([making.implementation(RELU)])
    result = execute(
        request, Notebook(), count, executor_factory=factory, suite=ListedSuite(CASES[:1]), backend=backend
    )
    (options,) = seen
    assert (options.device, options.threads, options.isolation) == ("cpu", 2, "none")
    assert options.manifest_key == read_run(result.folder).manifest.key


def test_run_ids_made_from_the_time_do_not_collide(tmp_path: Path) -> None:
    folders = {run(tmp_path).folder.name for _ in range(3)}
    assert len(folders) == 3
    assert all(name.startswith("run_") for name in folders)


def test_an_operator_that_the_backend_lacks_is_recorded_as_missing(tmp_path: Path) -> None:
    result = run(tmp_path, offered=(RELU,))
    missing = [record for record in result.records if isinstance(record.verdict, Missing)]
    assert {record.case.operator for record in missing} == {ADD}
    assert len(missing) == 3
    assert len(result.records) == 6


class Interrupted:
    """Answers some jobs, then meets Ctrl-C; remembers that it was closed."""

    def __init__(self, after: int, how: Callable[[], None]) -> None:
        self.after, self.how, self.closed = after, how, False

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        try:
            for number, record in enumerate(FakeExecutor(agree).run(jobs)):
                if number == self.after:
                    self.how()
                yield record
        finally:
            self.closed = True


def press_ctrl_c() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "how",
    [press_ctrl_c, lambda: signal.raise_signal(signal.SIGINT), lambda: signal.raise_signal(signal.SIGTERM)],
    ids=["exception", "SIGINT", "SIGTERM"],
)
def test_an_interrupted_run_keeps_what_is_done_and_goes_on_later(tmp_path: Path, how: Callable[[], None]) -> None:
    executor = Interrupted(4, how)
    before = signal.getsignal(signal.SIGTERM)
    stopped = run(tmp_path, executor=executor, run_id="x")
    assert stopped.interrupted
    assert executor.closed
    assert len(stopped.records) == 4
    assert (stopped.folder / "count.txt").read_text().startswith("4 records")
    assert signal.getsignal(signal.SIGTERM) is before

    notebook = Notebook()
    resumed = run(tmp_path, observer=notebook, run_id="x", resume=True)
    assert not resumed.interrupted
    assert len(notebook.plans[0].done) == 4
    assert len(notebook.records) == 2
    undisturbed = run(tmp_path, run_id="y")
    strip = [msgspec.structs.replace(record, manifest_key="") for record in resumed.records]
    assert strip == [msgspec.structs.replace(record, manifest_key="") for record in undisturbed.records]


class SlowToStop(Interrupted):
    """Ctrl-C is pressed again, some times, while the executor ends its processes."""

    def __init__(self, presses: int) -> None:
        super().__init__(4, lambda: signal.raise_signal(signal.SIGINT))
        self.presses, self.stopped = presses, False

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        try:
            yield from super().run(jobs)
        finally:
            for _ in range(self.presses):
                signal.raise_signal(signal.SIGINT)
            self.stopped = True


def test_a_second_ctrl_c_does_not_leave_processes_behind(tmp_path: Path) -> None:
    executor = SlowToStop(presses=1)
    result = run(tmp_path, executor=executor)
    assert result.interrupted
    assert executor.stopped
    assert len(result.records) == 4


def test_a_third_ctrl_c_is_obeyed_at_once_and_the_records_stay(tmp_path: Path) -> None:
    executor = SlowToStop(presses=2)
    result = run(tmp_path, executor=executor, run_id="x")
    assert result.interrupted
    assert not executor.stopped
    assert len(read(tmp_path / "x" / RECORDS, CASE_RECORDS).records) == 4


class PressesWhileRecording(Notebook):
    """Ctrl-C arrives while a record is being written."""

    def recorded(self, record: Record) -> None:
        super().recorded(record)
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_inside_the_writing_of_a_record_ends_the_run_after_it(tmp_path: Path) -> None:
    notebook = PressesWhileRecording()
    result = run(tmp_path, observer=notebook)
    assert result.interrupted
    assert list(result.records) == notebook.records
    assert len(result.records) == 1


def test_an_executor_that_breaks_leaves_its_records_and_says_how_to_go_on(tmp_path: Path) -> None:
    def decide(job: Job) -> Verdict:
        if job.case is CASES[2]:
            raise InfrastructureError("the device fell off the bus")
        return making.AGREES

    notebook = Notebook()
    with pytest.raises(InfrastructureError, match="fell off the bus"):
        run(tmp_path, decide, notebook, run_id="x")
    assert len(read(tmp_path / "x" / RECORDS, CASE_RECORDS).records) == 2
    assert any("--resume --run-id x" in warning for warning in notebook.warnings)
    assert len(run(tmp_path, run_id="x", resume=True).records) == 6


class Forgetful:
    """Answers the first job twice, one that nobody asked for, and forgets the rest."""

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        first = next(FakeExecutor(agree).run(jobs))
        return iter([first, first, making.record(of=making.case(SUM))])


def test_a_job_without_an_answer_is_unjudged_and_a_double_answer_is_one(tmp_path: Path) -> None:
    notebook = Notebook()
    result = run(tmp_path, executor=Forgetful(), observer=notebook, run_id="x")
    assert len(result.records) == 6
    assert sum(isinstance(record.verdict, Unjudged) for record in result.records) == 5
    assert sum("unasked or twice" in warning for warning in notebook.warnings) == 2
    resumed = run(tmp_path, run_id="x", resume=True)
    assert not any(isinstance(record.verdict, Unjudged) for record in resumed.records)
    assert len(read(result.folder / SUPERSEDED, CASE_RECORDS).records) == 5


def test_resuming_a_finished_run_judges_nothing_again(tmp_path: Path) -> None:
    run(tmp_path, run_id="x")
    before = (tmp_path / "x" / RECORDS).read_bytes()

    def refuse(job: Job) -> Verdict:
        raise AssertionError("judged again")

    assert len(run(tmp_path, refuse, run_id="x", resume=True).records) == 6
    assert (tmp_path / "x" / RECORDS).read_bytes() == before


def test_a_resumed_run_judges_what_the_backend_has_learnt(tmp_path: Path) -> None:
    run(tmp_path, offered=(RELU,), run_id="x")
    result = run(tmp_path, run_id="x", resume=True)
    assert not any(isinstance(record.verdict, Missing) for record in result.records)
    assert len(result.records) == 6


def test_a_torn_last_line_is_noted_and_judged_again(tmp_path: Path) -> None:
    path = run(tmp_path, run_id="x").folder / RECORDS
    path.write_bytes(path.read_bytes()[:-10])
    notebook = Notebook()
    assert len(run(tmp_path, observer=notebook, run_id="x", resume=True).records) == 6
    assert len(notebook.records) == 1
    assert any("torn" in warning for warning in notebook.warnings)


def test_changed_circumstances_are_told_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(tmp_path, run_id="x")
    monkeypatch.setenv("TORCHSTONE_TEST_MARK", "1")
    notebook = Notebook()
    run(tmp_path, observer=notebook, run_id="x", resume=True)
    assert any("environment.TORCHSTONE_TEST_MARK" in warning for warning in notebook.warnings)
    (other,) = first.folder.glob("manifest_*.json")
    assert json.loads(other.read_text())["environment"]["TORCHSTONE_TEST_MARK"] == "1"


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"run_id": "x"}, r"run folder .*x exists. Use --resume"),
        ({"run_id": "new", "resume": True}, "unknown run 'new'.*Leave out --resume"),
        ({"run_id": "x", "resume": True, "effort": "quick"}, "effort was normal, now quick"),
        ({"run_id": "x", "resume": True, "operators": ("relu",)}, "--ops was not given, now relu"),
        ({"run_id": "x", "resume": True, "measured": False}, "--no-measure was not given, now given"),
        ({"operators": ("rleu",)}, "unknown operator 'rleu'"),
        ({"operators": ("elu",)}, "Did you mean 'aten.relu.default'"),
        ({"dtypes": ("flaot32",)}, "unknown dtype 'flaot32'"),
    ],
)
def test_what_cannot_be_done_as_asked_is_one_line(tmp_path: Path, request_: dict[str, object], said: str) -> None:
    run(tmp_path, run_id="x")
    with pytest.raises(UsageError, match=said) as caught:
        run(tmp_path, **request_)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} == {"x"}


def test_an_unwritable_place_is_one_line_of_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot write the run folder .*file/runs"):
        run(tmp_path / "file" / "runs")


def test_a_suite_without_a_fitting_case_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no case"):
        execute(
            RunRequest(device="cpu", output_dir=tmp_path),
            Notebook(),
            count,
            suite=ListedSuite([]),
            backend=ListedBackend([]),
        )


def test_a_folder_whose_maker_was_killed_at_once_can_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    assert len(run(tmp_path, run_id="x", resume=True).records) == 6


class Broken(ListedBackend):
    def problems(self) -> tuple[Problem, ...]:
        return (Problem("kernels/relu", "no entry point relu_kernel_impl"),)


def test_what_a_backend_could_not_use_is_told_kept_and_reported(tmp_path: Path) -> None:
    notebook = Notebook()
    result = execute(
        RunRequest(device="cpu", output_dir=tmp_path),
        notebook,
        count,
        executor_factory=lambda options: FakeExecutor(agree),
        suite=ListedSuite(CASES),
        backend=Broken([]),
    )
    assert notebook.warnings == ["kernels/relu: no entry point relu_kernel_impl"]
    assert read_run(result.folder).problems == result.problems
    assert (result.folder / "count.txt").read_text() == "6 records, 1 problems\n"


@pytest.mark.parametrize("damage", ["{", '{"hardware": 1}'])
def test_a_damaged_manifest_is_named(tmp_path: Path, damage: str) -> None:
    folder = run(tmp_path, run_id="x").folder
    (folder / "manifest.json").write_text(damage)
    with pytest.raises(TorchstoneError, match=r"manifest\.json is not a manifest"):
        read_run(folder)


def test_a_folder_that_is_no_run_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run folder"):
        read_run(tmp_path)
