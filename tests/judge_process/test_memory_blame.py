"""A candidate that holds a device's memory is blamed for what the reference lacks, and has no check skipped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch

from torchstone import operators
from torchstone.calls.draw_arguments import draw_call
from torchstone.calls.reference_calls import Evaluator, ReferenceFailure
from torchstone.calls.torch_errors import excusing_shortage_if, operator_errors
from torchstone.judge_process import measured_parties
from torchstone.judge_process.candidate_failures import DeviceLostError
from torchstone.judge_process.job_retries import judge
from torchstone.judge_process.measured_parties import ReferenceGraphs, ReferenceLostError
from torchstone.judge_process.measuring_lane import MeasuringLane
from torchstone.judge_process.memory_blame import MemoryShortage
from torchstone.judge_process.resources import JudgeResources
from torchstone.judging import Reference, UncapturableError
from torchstone.measuring.ceilings import DeviceCeilings
from torchstone.measuring.device_state import DeviceProbe
from torchstone.measuring.kept_ceilings import KeptCeilings
from torchstone.processes.memory_ledger import MemoryLedger, Reservation
from torchstone.protocol.replies import Failed
from torchstone.schema import (
    Case,
    Crashed,
    Implementation,
    Job,
    Normal,
    SourceFile,
    SourceFiles,
    Tensor,
    Unjudged,
    Unsupported,
    explain,
    verdict_name,
)
from torchstone.supervisor.worker_pool import WorkerOptions, WorkerPool

GIB = 1 << 30
RELU = "aten.relu.default"
CASE = Case("tests", RELU, (Tensor((33, 65), "float32", Normal()),))
RIGHT = "def kernel(x):\n    return x.clamp(min=0)\n"
LACKING = "CUDA out of memory. Tried to allocate 2.00 GiB"


class PretendedMemory:
    """A device of 80 GiB, of which a candidate holds some as long as it is there."""

    def __init__(self, held: Callable[[], int]) -> None:
        self.held = held
        self.own = 0

    def free_bytes(self) -> int:
        return self.total_bytes() - self.held() - self.own

    def own_bytes(self) -> int:
        return self.own

    def total_bytes(self) -> int:
        return 80 * GIB


def watched(held: dict[str, int]) -> MemoryShortage:
    shortage = MemoryShortage(PretendedMemory(lambda: sum(held.values())), lambda: True)
    shortage.watch()
    return shortage


# ---- what counts as a refusal of torch


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError(LACKING),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA error: out of memory"),
    ],
)
def test_a_lack_of_memory_that_is_not_excused_is_no_refusal(error: Exception) -> None:
    def caught() -> bool:
        try:
            raise error
        except operator_errors():
            return True

    assert caught()
    with excusing_shortage_if(lambda: True):
        assert caught()
    with excusing_shortage_if(lambda: False), pytest.raises(type(error)):
        caught()


def test_another_error_of_torch_is_a_refusal_however_memory_is(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = Evaluator(CASE, torch.device("cpu"))
    call = draw_call(CASE, 0, torch.device("cpu"))
    with excusing_shortage_if(lambda: False):
        monkeypatch.setattr(evaluator, "operator", raising(RuntimeError("sizes do not match"), evaluator.operator))
        with pytest.raises(ReferenceFailure, match="sizes do not match"):
            evaluator.natives([call])
        monkeypatch.setattr(evaluator, "operator", raising(RuntimeError("CUDA error: out of memory"), RELU))
        with pytest.raises(torch.OutOfMemoryError):
            evaluator.natives([call])


def test_float64_bounds_are_not_given_up_for_a_lack_of_memory_that_is_not_excused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lacking(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError(LACKING)

    monkeypatch.setattr(Evaluator, "float64_call", lacking)
    reference = Reference(CASE, torch.device("cpu"))
    expected = reference.expect(draw_call(CASE, 0, torch.device("cpu")))
    with excusing_shortage_if(lambda: False), pytest.raises(torch.OutOfMemoryError):
        expected.values()
    assert reference.float64_failure is None
    expected.values()
    assert "out of memory" in str(reference.float64_failure)


def raising(error: Exception, like: Any) -> Any:
    class Operator:
        tags = getattr(like, "tags", ())
        _schema = getattr(like, "_schema", None)

        def __call__(self, *_: Any, **__: Any) -> Any:
            raise error

    return Operator()


# ---- who is to blame


def test_without_anything_untrusted_on_the_device_a_lack_says_that_the_call_does_not_fit() -> None:
    assert MemoryShortage(PretendedMemory(lambda: 0), lambda: False).is_excused()
    assert not MemoryShortage(PretendedMemory(lambda: 0), lambda: True).is_excused()
    assert MemoryShortage(None, lambda: True).is_excused()  # the host: workers have a limit there


def test_a_candidate_may_hold_what_its_case_needs_and_a_share_of_the_device() -> None:
    held = {"others": 3 * GIB}
    shortage = watched(held)
    shortage.plan(buffers_bytes=GIB, reference_peak_bytes=2 * GIB)
    held["candidate"] = 12 * GIB  # four times its buffers, twice the reference's peak, a sixteenth of the device: 13
    assert shortage.is_excused()
    held["candidate"] = 14 * GIB
    assert not shortage.is_excused()
    found = shortage.verdict("check", torch.OutOfMemoryError(LACKING))
    assert isinstance(found, Crashed)
    assert (found.kind, found.stage) == ("memory", "check")
    assert "held 14.0 GiB" in found.message
    assert "at most 13.0 GiB" in found.message


def test_what_the_judge_takes_itself_is_not_the_candidates() -> None:
    memory = PretendedMemory(lambda: 0)
    shortage = MemoryShortage(memory, lambda: True)
    shortage.watch()
    memory.own = 60 * GIB
    assert shortage.is_excused()
    assert isinstance(shortage.verdict("check", torch.OutOfMemoryError(LACKING)), Unsupported)


def test_memory_that_a_process_gives_back_after_its_end_is_not_the_candidates() -> None:
    held = {"candidate": 0}
    shortage, later = watched(held), iter([60 * GIB, 30 * GIB, 0])
    shortage._memory.held = lambda: next(later, 0)  # type: ignore[union-attr]
    assert shortage.is_excused()


def test_the_judges_own_workers_hold_as_much_as_the_candidate_may() -> None:
    workers, memory = [0], PretendedMemory(lambda: 0)
    shortage = MemoryShortage(memory, lambda: True, lambda: workers[0])
    shortage.watch()
    shortage.plan(buffers_bytes=GIB, reference_peak_bytes=2 * GIB)  # 8 GiB for each, and 5 GiB at will
    workers[0], memory.held = 2, lambda: 28 * GIB
    assert shortage.is_excused()
    memory.held = lambda: 30 * GIB
    assert not shortage.is_excused()
    workers[0], memory.held = 0, lambda: 14 * GIB  # they are gone, and the most in excess counts
    assert not shortage.is_excused()
    found = shortage.verdict("measure", torch.OutOfMemoryError(LACKING))
    assert isinstance(found, Crashed)
    assert "held 30.0 GiB" in found.message
    assert "at most 29.0 GiB" in found.message


def test_a_device_full_of_other_processes_leaves_a_case_unjudged() -> None:
    shortage = watched({"others": 40 * GIB})
    assert not shortage.is_excused()
    found = shortage.verdict("check", torch.OutOfMemoryError(LACKING))
    assert isinstance(found, Unjudged)
    assert "other processes hold 40.0 GiB" in found.reason


def test_a_candidate_that_lacks_memory_which_others_hold_has_not_crashed() -> None:
    crash = Crashed("check", "memory", "OutOfMemoryError: CUDA out of memory")
    assert isinstance(watched({"others": 40 * GIB}).verdict_for_crash(crash), Unjudged)
    assert watched({"others": 4 * GIB}).verdict_for_crash(crash) is crash
    assert MemoryShortage(None, lambda: True).verdict_for_crash(crash) is crash


def test_the_next_job_begins_without_blame() -> None:
    held = {"candidate": 0}
    shortage = watched(held)
    held["candidate"] = 70 * GIB
    assert not shortage.is_excused()
    shortage.end()
    assert not shortage.is_watched
    held["candidate"] = 0
    shortage.watch()
    assert shortage.is_excused()


# ---- memory that lacks for recording the reference's calls


def reference_whose_recording_fails(kind: Literal["memory", "exception"]) -> ReferenceGraphs:
    answer = Failed("token", kind, "CUDA error: something", "")
    bound: Any = SimpleNamespace(worker=SimpleNamespace(ask=lambda *_: answer, freeze=lambda: None))
    nothing: Any = None
    return ReferenceGraphs(bound, nothing, nothing, chained=False)


@pytest.mark.parametrize(
    ("kind", "is_excused", "expected"),
    [
        ("memory", False, torch.OutOfMemoryError),
        ("memory", True, UncapturableError),
        ("exception", False, UncapturableError),
    ],
)
def test_a_candidate_cannot_choose_by_its_memory_how_a_case_is_measured(
    kind: Literal["memory", "exception"], is_excused: bool, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_parties, "_uses_cuda", lambda: True)
    with excusing_shortage_if(lambda: is_excused), pytest.raises(expected):
        reference_whose_recording_fails(kind).record(8)


# ---- a whole trial, with real workers: the device that lacks memory is pretended, the rest is as it is


class Scene:
    """A judge of its own, whose reference lacks memory at some calls once a candidate is loaded."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, ledger: MemoryLedger | None = None) -> None:
        device = torch.device("cpu")
        ceilings = DeviceCeilings(device, 1, (), KeptCeilings(None))
        pool = WorkerPool(WorkerOptions(spares=0))
        lane = MeasuringLane("cpu", folder)
        self.resources = JudgeResources(pool, lane, device, 1, DeviceProbe("cpu"), ceilings, ledger=ledger)
        self.held = 0
        self.lacks: Callable[[Case], bool] = lambda case: False
        self.error: Exception = torch.OutOfMemoryError(LACKING)
        memory = PretendedMemory(lambda: self.held if self.has_candidate else 0)
        self.resources.shortage = MemoryShortage(memory, lambda: self.has_candidate)
        call = Evaluator._call

        def called(evaluator: Evaluator, case: Case, *given: Any) -> Any:
            if self.has_candidate and self.lacks(case):
                raise self.error
            return call(evaluator, case, *given)

        monkeypatch.setattr(Evaluator, "_call", called)

    @property
    def has_candidate(self) -> bool:
        return self.resources._candidate_worker is not None

    def record(self, source: str = RIGHT) -> Any:
        files = SourceFiles((SourceFile("k.py", source),), "kernel")
        job = Job(CASE, Implementation("tests", RELU, files), "quick", measured=False)
        return judge(job, self.resources, "cpu", "tests", "best")


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = Scene(tmp_path, monkeypatch)
    try:
        yield made
    finally:
        made.resources.close()


def is_variant(case: Case) -> bool:
    return case.args != CASE.args


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError(LACKING),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
    ],
)
def test_a_candidate_that_fills_the_device_does_not_get_its_variants_skipped(error: Exception, scene: Scene) -> None:
    scene.held, scene.lacks, scene.error = 70 * GIB, is_variant, error
    record = scene.record()
    assert isinstance(record.verdict, Crashed), explain(record.verdict)
    assert record.verdict.kind == "memory"
    assert "held 70.0 GiB of the device's memory" in record.verdict.message
    assert record.attempts == 2


def test_a_candidate_that_fills_the_device_does_not_make_its_case_unsupported(scene: Scene) -> None:
    scene.held, scene.lacks = 70 * GIB, lambda case: True
    assert verdict_name(scene.record().verdict) == "crashed"
    scene.held, scene.lacks = 0, lambda case: False
    assert verdict_name(scene.record().verdict) == "agrees"  # the next job is not blamed


def test_a_variant_that_does_not_fit_beside_an_honest_candidate_is_skipped(scene: Scene) -> None:
    scene.held, scene.lacks = GIB, is_variant
    record = scene.record()
    assert verdict_name(record.verdict) == "agrees", explain(record.verdict)
    assert record.attempts == 2


def test_a_lack_of_memory_that_passes_leaves_nothing_behind(scene: Scene) -> None:
    times = iter([True])
    scene.held, scene.lacks = GIB, lambda case: is_variant(case) and next(times, False)
    record = scene.record("def kernel(x):\n    return x.clamp(min=0) if x.shape == (33, 65) else x\n")
    assert verdict_name(record.verdict) == "disagrees", explain(record.verdict)


def test_a_lack_of_memory_in_the_last_attempt_gets_one_more_with_the_device_alone(scene: Scene) -> None:
    errors = iter([*(ReferenceLostError("killed from outside") for _ in range(4)), torch.OutOfMemoryError(LACKING)])

    def lacks(case: Case) -> bool:
        error = next(errors, None)
        scene.error = error or scene.error
        return error is not None

    scene.held, scene.lacks = GIB, lacks
    record = scene.record()
    assert verdict_name(record.verdict) == "agrees", explain(record.verdict)
    assert next(errors, None) is None


def test_a_worker_that_lacks_memory_to_open_the_device_is_started_again_with_the_device_alone(scene: Scene) -> None:
    reason = "a worker could not open the device: CUDA error: out of memory"
    errors = iter([DeviceLostError(reason), DeviceLostError("a worker could not open the device: it is gone")])

    def lacks(case: Case) -> bool:
        error = next(errors, None)
        scene.error = error or scene.error
        return error is not None

    scene.held, scene.lacks = GIB, lacks
    record = scene.record()
    assert verdict_name(record.verdict) == "agrees", explain(record.verdict)
    assert record.attempts == 3


def test_memory_that_an_earlier_candidate_held_is_not_missing_to_the_next_job(scene: Scene) -> None:
    assert verdict_name(scene.record().verdict) == "agrees"
    assert scene.has_candidate  # it stays for its next case
    asked = []

    def require() -> None:
        asked.append(scene.has_candidate)
        if scene.has_candidate:
            raise ReferenceFailure("needs about 9 GiB to be judged")

    scene.resources.without_candidate_if_needed(require)
    assert asked == [True, False]


@pytest.mark.parametrize(
    ("error", "is_known_later"),
    [(torch.OutOfMemoryError(LACKING), True), (RuntimeError("the model was lost"), False)],
)
def test_what_the_reference_needs_is_asked_again_if_memory_was_lacking(
    error: Exception, is_known_later: bool, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as lacking:
        lacking.setattr(operators, "resolve", lambda name: raising(error, RELU))
        assert scene.resources.reference_peak_bytes(CASE) is None
    assert (scene.resources.reference_peak_bytes(CASE) is not None) is is_known_later


def test_a_case_waits_for_memory_that_another_process_of_ours_has_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs more than was known before its first call: what it has reserved does not stay in the other's way."""
    monkeypatch.setattr("torchstone.judge_process.memory_reservation.host_bytes", lambda: 64 << 10)
    ledger = MemoryLedger("host", lambda: 200_000, tmp_path / "ledger")
    made = Scene(tmp_path, monkeypatch, ledger)
    try:
        other = ledger.reserve(100_000)
        assert other is not None
        threading.Thread(target=release_when_waited_for, args=(made.resources, other), daemon=True).start()
        record = made.record()
        assert verdict_name(record.verdict) == "agrees", explain(record.verdict)
        assert record.attempts == 1
        assert record.stage_seconds["wait"] > 0.3
        assert ledger.try_reserve(200_000) is not None, "the job has released its own"
    finally:
        made.resources.close()


def release_when_waited_for(resources: JudgeResources, reservation: Reservation) -> None:
    while not resources.memory.waits:
        time.sleep(0.01)
    assert resources.waits, "the judge says that it is alive"
    time.sleep(0.4)
    reservation.release()
