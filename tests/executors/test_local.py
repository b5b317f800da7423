"""The local executor with real judges and real workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from torchstone.errors import DeviceUnavailableError, InfrastructureError
from torchstone.executors import ExecutorOptions, devices, judge_handle, judge_one, local
from torchstone.executors.devices import find_devices, visible_uuids
from torchstone.executors.local import JudgeProcess, LocalExecutor
from torchstone.judge_process.process import Judged, Opened, share_cores
from torchstone.schema import (
    Agrees,
    Block,
    Booleans,
    Case,
    Cheated,
    Crashed,
    Deadlines,
    Delegated,
    Disagrees,
    Implementation,
    ImportPath,
    Job,
    Normal,
    Record,
    Scalar,
    Sequence,
    SourceFile,
    SourceFiles,
    Tensor,
    TimedOut,
    Unjudged,
    Unsupported,
)
from torchstone.suites.gradient_cases import backward_case
from torchstone.supervisor.ptrace_freezing import children, descendants

RELU = Case("test", "aten.relu.default", (Tensor((5, 7), "float32", Normal()),))
TIMED = Case("test", "aten.relu.default", (Tensor((64, 64), "float32", Normal()),), timed=True)


def source(text: str, operator: str = "aten.relu.default") -> Implementation:
    return Implementation("test", operator, SourceFiles((SourceFile("kernel.py", text),), "kernel"))


HONEST = source("def kernel(x): return x.clamp(min=0)")
ATEN = Implementation("aten", RELU.operator, ImportPath("torch", "ops.aten.relu.default"), "aten")


@pytest.fixture(scope="module", autouse=True)
def _one_judge_for_many_tests() -> Iterator[None]:
    """Starting one takes longer than most of the tests."""
    global _judge
    yield
    if _judge is not None:
        _judge.stop()
        _judge = None


_judge: JudgeProcess | None = None


def records_of(*jobs: Job) -> list[Record]:
    """By the judge that the tests share."""
    global _judge
    if _judge is None:
        (device,) = find_devices("cpu")
        _judge = JudgeProcess(device, ExecutorOptions())
        _judge.start()
        assert isinstance(_judge.receive(), Opened)
    return [_record(_judge, job) for job in jobs]


def _record(judge: JudgeProcess, job: Job) -> Record:
    judge.give(job, 0)
    while not isinstance(announcement := judge.receive(), Judged):
        assert announcement is not None, judge.exit_message()
    return judge.finish(announcement.record)


def judge_all(*jobs: Job) -> list[object]:
    return [record.verdict for record in records_of(*jobs)]


def judge_in_a_run(*jobs: Job) -> list[object]:
    """By a judge of their own, which an executor starts and ends."""
    records = {record.job_key: record for record in LocalExecutor(ExecutorOptions()).run(jobs)}
    assert len(records) == len(jobs)
    return [records[job.key].verdict for job in jobs]


def test_a_returned_input_is_an_alias_only_where_the_operator_promises_a_new_tensor() -> None:
    clone = Case("test", "aten.clone.default", RELU.args)
    maximum = Case("test", "aten.max.dim", (*RELU.args, Scalar(1)))
    view = Case("test", "aten.transpose.int", (*RELU.args, Scalar(0), Scalar(1)))
    itself, part, other, halves = judge_all(
        Job(clone, source("def kernel(x): return x", clone.operator)),
        Job(clone, source("def kernel(x): return x.t().t()[:]", clone.operator)),
        Job(view, source("def kernel(x, a, b): return x.mT", view.operator)),
        Job(maximum, source("def kernel(x, d): return tuple(x.max(d))", maximum.operator)),
    )
    for verdict in (itself, part):
        assert isinstance(verdict, Disagrees)
        assert verdict.reason == "aliasing"
        assert "in the memory of tensor argument 0; expected a new tensor" in verdict.message
    assert isinstance(other, Agrees)
    assert isinstance(halves, Agrees)


def test_a_view_operator_must_return_that_view() -> None:
    transpose = Case("test", "aten.transpose.int", (*RELU.args, Scalar(0), Scalar(1)))
    select = Case("test", "aten.select.int", (Tensor((50, 70), "float32", Normal()), Scalar(1), Scalar(3)))
    reshape = Case("test", "aten.reshape.default", (*RELU.args, Sequence((Scalar(35),))))
    copied, column, other_column, free = judge_all(
        Job(transpose, source("def kernel(x, a, b): return x.mT.contiguous()", transpose.operator)),
        Job(select, source("def kernel(x, d, i): return x.movedim(d, 0)[i]", select.operator)),
        Job(select, source("def kernel(x, d, i): return x.movedim(d, 0)[i].clone()", select.operator)),
        Job(reshape, source("def kernel(x, s): return x.reshape(s).clone()", reshape.operator)),
    )
    for verdict in (copied, other_column):
        assert isinstance(verdict, Disagrees)
        assert verdict.reason == "aliasing"
        assert "output 0 is no view of tensor argument 0" in verdict.message
    assert isinstance(column, Agrees), column
    assert isinstance(free, Agrees), "reshape promises a view only where it can, so nobody can rely on one"


def test_verdicts_of_one_run_in_one_go() -> None:
    picky = source("def kernel(x):\n    if x.dim() == 2: raise NotImplementedError('2-d')\n    return x.clamp(min=0)")
    stateful = source(
        "calls = 0\ndef kernel(x):\n    global calls\n    calls += 1\n    return x.clamp(min=0) if calls < 4 else x"
    )
    nowhere = Case("test", "aten.relu.default", (Tensor((5,), "complex64", Normal()),))
    unheard_of = Case("test", "aten.no_such_thing.default", (Tensor((5,), "float32", Normal()),))
    verdicts = judge_in_a_run(
        Job(RELU, HONEST),
        Job(RELU, ATEN),
        Job(RELU, picky),
        Job(RELU, stateful),
        Job(RELU, source("def kernel(x): return None")),
        Job(RELU, source("def kernel(x): return x.double().clamp(min=0)")),
        Job(RELU, source("def kernel(x): return [x.clamp(min=0), x]")),
        Job(RELU, source("import time\ndef kernel(x): time.sleep(60)"), deadlines=Deadlines(compile_seconds=0.5)),
        Job(RELU, source("import time\ntime.sleep(60)"), deadlines=Deadlines(load_seconds=0.5)),
        Job(nowhere, HONEST),
        Job(unheard_of, HONEST),
    )
    agrees, aten, unsupported, later, nothing, dtype, extra, slow, slow_load, *no_reference = verdicts
    assert isinstance(agrees, Agrees)
    assert agrees.calls_verified > 5 + 4 * 2, "five of the stated case, two of each hidden variant, and planted ones"
    assert isinstance(aten, Agrees)
    assert isinstance(unsupported, Unsupported)
    assert unsupported.by == "candidate"
    assert isinstance(later, Disagrees)
    assert later.stage == "check"
    assert isinstance(nothing, Disagrees)
    assert nothing.reason == "structure"
    assert isinstance(dtype, Disagrees)
    assert dtype.reason == "dtype"
    assert isinstance(extra, Disagrees)
    assert extra.reason == "structure"
    assert isinstance(slow, TimedOut)
    assert (slow.stage, slow.limit_seconds) == ("compile", 0.5)
    assert 0.5 <= slow.elapsed_seconds < 2
    assert isinstance(slow_load, TimedOut)
    assert slow_load.stage == "load"
    assert [verdict.by for verdict in no_reference if isinstance(verdict, Unsupported)] == ["reference"] * 2


def test_a_kernel_that_knows_only_the_stated_shape_fails_on_a_hidden_variant() -> None:
    exact_here = "    if x.shape == (5, 7) and x.is_contiguous(): return x.clamp(min=0)\n"
    wrong, raising, refusing, opted_out = judge_all(
        Job(RELU, source(f"def kernel(x):\n{exact_here}    return torch.ones_like(x)\nimport torch")),
        Job(RELU, source(f"def kernel(x):\n{exact_here}    raise ValueError('what is this?')")),
        Job(RELU, source(f"def kernel(x):\n{exact_here}    raise NotImplementedError('only 5 by 7')")),
        Job(
            msgspec.structs.replace(RELU, jitter=False),
            source(f"def kernel(x):\n{exact_here}    raise ValueError('never called so')"),
        ),
    )
    assert isinstance(wrong, Disagrees)
    assert wrong.message.startswith("also tried with ")
    assert wrong.replay is not None
    assert wrong.replay.case.tags == ("hidden",)
    assert isinstance(raising, Crashed)
    assert raising.message.startswith("also tried with ")
    assert raising.replay is not None
    assert raising.replay.case.tags == ("hidden",)
    assert isinstance(refusing, Unsupported)
    assert refusing.reason.startswith("also tried with ")
    assert isinstance(opted_out, Agrees)


def test_a_replay_makes_the_call_that_failed_and_no_other() -> None:
    wrong = source("def kernel(x): return x.clamp(min=0) + (x > 1.5)")
    (before,) = judge_all(Job(RELU, wrong))
    assert isinstance(before, Disagrees)
    assert before.replay is not None
    again, right, nonsense = judge_all(
        Job(RELU, wrong, replay=before.replay),
        Job(RELU, HONEST, replay=before.replay),
        Job(RELU, HONEST, replay=msgspec.structs.replace(before.replay, index=before.replay.count)),
    )
    assert isinstance(again, Disagrees)
    assert again.message in before.message
    assert again.replay == before.replay
    assert again.errors.smallest_wrong_error == pytest.approx(1.0, rel=1e-5)
    assert again.errors.largest_wrong_error == pytest.approx(1.0, rel=1e-5)
    assert isinstance(right, Agrees)
    assert right.calls_verified == 1
    assert isinstance(nonsense, Unsupported)


def test_a_crash_names_its_call_and_a_replay_crashes_there_again() -> None:
    raising = source(
        "def kernel(x):\n    if (x.abs() > 16).any(): raise ValueError('large')\n    return x.clamp(min=0)"
    )
    dying = source("import os\ndef kernel(x):\n    if (x.abs() > 16).any(): os._exit(7)\n    return x.clamp(min=0)")
    raised, died = judge_all(Job(RELU, raising), Job(RELU, dying))
    assert isinstance(raised, Crashed)
    assert raised.replay is not None
    assert raised.replay.planted, "ordinary values are smaller: it is a call with planted ones"
    assert not raised.replay.others, "what raises tells in which call"
    assert isinstance(died, Crashed)
    assert died.replay is not None
    assert any(other.planted for other in died.replay.others), "what dies does not: the block is made again"
    again, once_more, right = judge_all(
        Job(RELU, raising, replay=raised.replay),
        Job(RELU, dying, replay=died.replay),
        Job(RELU, HONEST, replay=died.replay),
    )
    assert isinstance(again, Crashed)
    assert (again.message, again.replay) == (raised.message, raised.replay)
    assert isinstance(once_more, Crashed)
    assert once_more.exit_code == 7
    assert once_more.replay is not None
    assert once_more.replay.planted, "one by one, the call is known"
    assert not once_more.replay.others
    assert isinstance(right, Agrees)
    assert right.calls_verified == 1 + len(died.replay.others)


def test_a_measurement_holds_raw_blocks_of_all_parties() -> None:
    (record,) = records_of(Job(TIMED, source("def kernel(x): return x.clamp_min(0)"), "quick"))
    assert isinstance(record.verdict, Agrees)
    measurement = record.measurement
    assert measurement is not None
    assert {block.party for block in measurement.blocks} == {"candidate", "reference", "shim"}
    assert all(isinstance(block, Block) and block.elapsed_ns > 0 for block in measurement.blocks)
    timed_calls = sum(block.calls for block in measurement.blocks if block.party == "candidate")
    assert record.verdict.calls_verified >= timed_calls, "every timed call is a verified call"
    assert set(record.stage_seconds) == {"start", "load", "compile", "check", "measure", "attribute", "wait"}


def test_a_kernel_that_goes_wrong_only_when_timed_is_caught() -> None:
    lazy = source(
        "seen = set()\ndef kernel(x):\n    seen.add(x.data_ptr())\n"
        "    return x.clamp(min=0) if len(seen) < 60 else x.new_zeros(x.shape)"
    )
    (record,) = records_of(Job(TIMED, lazy, "quick"))
    assert isinstance(record.verdict, Disagrees)
    assert record.verdict.stage == "measure"
    assert record.measurement is None


def test_in_place_and_plain_results_are_judged() -> None:
    in_place = Case(
        "test", "aten.add_.Tensor", (Tensor((4, 6), "float32", Normal()), Tensor((6,), "float32", Normal()))
    )
    three = Tensor((3,), "float32", Normal())
    equal = Case("test", "aten.equal.default", (three, three), jitter=False)
    verdicts = judge_all(
        Job(in_place, source("def kernel(x, y): return x.copy_(x + y)", in_place.operator)),
        Job(in_place, source("def kernel(x, y): return x", in_place.operator)),
        Job(in_place, source("def kernel(x, y): return x + y", in_place.operator)),
        Job(equal, source("def kernel(x, y): return bool((x == y).all())", equal.operator)),
        Job(equal, source("def kernel(x, y): return False", equal.operator)),
        Job(equal, source("def kernel(x, y): return True", equal.operator)),
    )
    assert [type(verdict) for verdict in verdicts] == [Agrees, Disagrees, Disagrees, Agrees, Disagrees, Disagrees]


def test_results_whose_shape_depends_on_values_are_judged() -> None:
    nonzero = Case("test", "aten.nonzero.default", (Tensor((5, 9), "bool", Booleans()),))
    flags = Tensor((64, 9), "bool", Booleans())
    select = Case("test", "aten.masked_select.default", (Tensor((64, 9), "float32", Normal()), flags), timed=True)
    right, short, selected, scaled, huge = judge_all(
        Job(nonzero, source("import torch\ndef kernel(x): return torch.stack(torch.where(x), 1)", nonzero.operator)),
        Job(nonzero, source("def kernel(x): return x.nonzero()[:-1]", nonzero.operator)),
        Job(select, source("def kernel(x, m): return x[m]", select.operator)),
        Job(select, source("def kernel(x, m): return x[m] * 1.01", select.operator)),
        Job(nonzero, source("def kernel(x): return x.nonzero().repeat(1 << 12, 1)", nonzero.operator)),
    )
    assert isinstance(right, Agrees), right
    assert isinstance(short, Disagrees)
    assert short.reason == "shape"
    assert isinstance(selected, Agrees), selected
    assert isinstance(scaled, Disagrees)
    assert scaled.reason == "values"
    assert isinstance(huge, Disagrees | Cheated)


def test_after_a_crash_the_other_cases_go_on_in_a_fresh_worker() -> None:
    fragile = source("import os\ndef kernel(x):\n    if x.numel() == 1: os._exit(3)\n    return x.clamp(min=0)")
    cases = [Case("test", RELU.operator, (Tensor((n,), "float32", Normal()),), jitter=False) for n in (2, 1, 3)]
    first, crash, last = judge_all(*(Job(case, fragile) for case in cases))
    assert isinstance(first, Agrees)
    assert isinstance(crash, Crashed)
    assert crash.exit_code == 3
    assert isinstance(last, Agrees)


def test_a_scalar_argument_and_a_keyword_reach_the_kernel() -> None:
    case = Case(
        "test",
        "aten.add.Tensor",
        (Tensor((4,), "float32", Normal()), Tensor((4,), "float32", Normal())),
        {"alpha": Scalar(2.5)},
    )
    (verdict,) = judge_all(Job(case, source("def kernel(x, y, *, alpha): return x + alpha * y", case.operator)))
    assert isinstance(verdict, Agrees)


@pytest.mark.slow
def test_a_judge_that_dies_on_every_job_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    give = JudgeProcess.give

    def give_and_kill(self: JudgeProcess, job: Job, lost: int) -> None:
        give(self, job, lost)
        assert self._process is not None
        self._process.kill()

    monkeypatch.setattr(JudgeProcess, "give", give_and_kill)
    monkeypatch.setattr(local.LocalSession, "most_attempts", 1)
    jobs = [Job(RELU, source(f"def kernel(x): return x.clamp(min={number} - {number})")) for number in range(4)]
    records: list[Record] = []
    with pytest.raises(InfrastructureError, match="dies on every job"):
        records.extend(LocalExecutor(ExecutorOptions()).run(jobs))
    assert len(records) == 3
    assert all(isinstance(record.verdict, Unjudged) and record.attempts == 1 for record in records)


@pytest.mark.slow
def test_one_candidate_that_kills_the_judge_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    give = JudgeProcess.give

    def give_and_kill(self: JudgeProcess, job: Job, lost: int) -> None:
        give(self, job, lost)
        if job.implementation != ATEN:
            assert self._process is not None
            self._process.kill()

    monkeypatch.setattr(JudgeProcess, "give", give_and_kill)
    monkeypatch.setattr(local.LocalSession, "most_attempts", 1)
    sizes = [Case("test", RELU.operator, (Tensor((size,), "float32", Normal()),)) for size in range(1, 4)]
    *killed, last = judge_in_a_run(*(Job(case, HONEST) for case in sizes), Job(RELU, ATEN))
    assert all(isinstance(verdict, Unjudged) for verdict in killed)
    assert isinstance(last, Agrees)


@pytest.mark.slow
def test_a_judge_that_is_stuck_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    give = JudgeProcess.give

    def give_and_stop(self: JudgeProcess, job: Job, lost: int) -> None:
        assert self._process is not None
        if job.implementation == HONEST:
            self._process.send_signal(signal.SIGSTOP)
        give(self, job, lost)

    monkeypatch.setattr(JudgeProcess, "give", give_and_stop)
    monkeypatch.setattr(local.LocalSession, "most_attempts", 2)
    monkeypatch.setattr(judge_handle, "_SILENCE_SECONDS", 0.0)
    monkeypatch.setattr(local, "_POLL_SECONDS", 0.1)
    patience = Deadlines(0.5, 0.5, 0.5, 0.5)
    stuck, agrees = judge_in_a_run(Job(RELU, HONEST, deadlines=patience), Job(RELU, ATEN))
    assert isinstance(stuck, Unjudged)
    assert "2 times" in stuck.reason
    assert "stuck" in stuck.reason
    assert isinstance(agrees, Agrees)


def test_no_error_after_a_candidate_was_loaded_ends_the_run(tmp_path: Path) -> None:
    """A worker that cannot be had for the reference, once the candidate has run, may be the candidate's doing."""
    (tmp_path / "sitecustomize.py").write_text(SPOILS_OWN_WORKERS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
        unjudged, agrees, next_one = judge_in_a_run(
            Job(TIMED, HONEST, "quick"), Job(RELU, ATEN), Job(TIMED, ATEN, "quick")
        )
    assert isinstance(unjudged, Unjudged)
    assert "InfrastructureError" in unjudged.reason
    assert isinstance(agrees, Agrees)
    assert isinstance(next_one, Unjudged), "nor does what is left of the one before"


SPOILS_OWN_WORKERS = """
import sys
if "torchstone.judge_process.process" in sys.orig_argv:
    from torchstone.judge_process import resources
    from torchstone.errors import InfrastructureError
    honest = resources.JudgeResources.own_worker
    def refuse(self, party):
        if self.has_had_candidates:
            raise InfrastructureError("no worker could be started")
        return honest(self, party)
    resources.JudgeResources.own_worker = refuse
"""


def test_closing_the_iterator_ends_the_judge_at_once() -> None:
    stuck = source("import time\ndef kernel(x): time.sleep(60)")
    jobs = [Job(RELU, HONEST), Job(RELU, stuck)]
    stream = LocalExecutor(ExecutorOptions()).run(jobs)
    next(stream)
    began = time.monotonic()
    stream.close()  # type: ignore[attr-defined]
    assert time.monotonic() - began < 5


def test_no_jobs_need_no_judge() -> None:
    assert list(LocalExecutor(ExecutorOptions(device="cuda:7")).run([])) == []


def test_an_absent_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_nvml_uuids", list)
    with pytest.raises(DeviceUnavailableError, match="no CUDA device is visible"):
        find_devices("cuda")


def test_visible_devices_are_those_that_cuda_would_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_nvml_uuids", lambda: ["GPU-aa", "GPU-bb", "GPU-cc"])
    assert visible_uuids({}) == ["GPU-aa", "GPU-bb", "GPU-cc"]
    assert visible_uuids({"CUDA_VISIBLE_DEVICES": "2,0"}) == ["GPU-cc", "GPU-aa"]
    assert visible_uuids({"CUDA_VISIBLE_DEVICES": "GPU-bb"}) == ["GPU-bb"]
    assert visible_uuids({"CUDA_VISIBLE_DEVICES": "0,9,1"}) == ["GPU-aa"], "an invalid entry ends the list"
    assert visible_uuids({"CUDA_VISIBLE_DEVICES": ""}) == []


@pytest.mark.slow
def test_two_runs_at_once_measure_in_turns_and_both_end(tmp_path: Path) -> None:
    """One measuring lane per device, across processes. A burst holds it, so neither run waits for the other's end."""
    command = [
        *(sys.executable, "-m", "torchstone", "run", "--suite", "smoke", "--ops", "relu,gelu,mm,cat"),
        *("--device", "cpu", "--effort", "quick", "--output-dir", str(tmp_path)),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    runs = [
        subprocess.Popen(
            [*command, "--run-id", name], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        for name in ("one", "two")
    ]
    for run in runs:
        _, errors = run.communicate(timeout=240)
        assert run.returncode == 0, errors
    spans: dict[str, list[tuple[int, int]]] = {}
    for name in ("one", "two"):
        lines = (tmp_path / name / "records.jsonl").read_text().splitlines()
        found = [json.loads(line)["measurement"] for line in lines]
        spans[name] = [(each["began_unix_ns"], each["ended_unix_ns"]) for each in found if each]
    one, two = spans.values()
    assert len(one) == len(two) >= 4
    assert any(max(a[0], b[0]) < min(a[1], b[1]) for a in one for b in two), "they took turns within a measurement"


WRITES = """
import ctypes
def kernel(x):
    result = x.clamp(min=0)
    ctypes.memset(x.data_ptr() + x.numel() * 4 + {offset}, 7, 16)
    return result
"""


def test_a_write_outside_every_buffer_is_noticed() -> None:
    behind, before = judge_all(
        Job(RELU, source(WRITES.format(offset=8))), Job(RELU, source(WRITES.format(offset=-5 * 7 * 4 - 100)))
    )
    assert isinstance(behind, Disagrees)
    assert (behind.reason, behind.stage) == ("bounds", "compile")
    assert "behind tensor argument 0" in behind.message
    assert isinstance(before, Disagrees)
    assert "before the first tensor argument" in before.message


def test_work_cannot_be_finished_after_it_was_reported_done() -> None:
    """A thread writes the right result into the judge's buffer a moment after the call returned."""
    late = source(
        """
import ctypes, threading, time
def kernel(x):
    right = x.clamp(min=0)
    result = right.clone().fill_(0.25)
    def finish():
        time.sleep(0.2)
        result.copy_(right)
        # the shim has copied `result` already; write to where it went: the buffer behind the argument's
        ctypes.memmove(x.data_ptr() + 1024, right.data_ptr(), right.numel() * 4)
    threading.Thread(target=finish).start()
    return result
"""
    )
    (verdict,) = judge_all(Job(RELU, late))
    assert isinstance(verdict, Disagrees)
    assert verdict.reason in ("values", "bounds")


def test_the_record_says_what_did_the_work() -> None:
    authored = source(
        "import ctypes\ndef kernel(x):\n    y = x.new_empty(x.shape)\n"
        "    ctypes.memmove(y.data_ptr(), x.data_ptr(), 4 * x.numel())\n    return y",
        "aten.clone.default",
    )
    # memmove knows one layout only: no hidden variants.
    case = Case("test", "aten.clone.default", (Tensor((5, 7), "float32", Normal()),), jitter=False)
    jobs = [
        Job(RELU, HONEST),
        Job(RELU, HONEST, require_authored=True),
        Job(case, authored, require_authored=True),
    ]
    reported, refused, own = records_of(*jobs)
    assert isinstance(reported.verdict, Agrees)
    assert reported.attribution is not None
    assert list(reported.attribution.operators) == ["aten.clamp.default"]
    assert isinstance(refused.verdict, Delegated)
    assert "aten.clamp.default" in refused.verdict.message
    assert isinstance(own.verdict, Agrees), own.verdict
    assert own.attribution is not None
    assert own.attribution.operators == {}
    assert (own.attribution.peak_memory_bytes, own.attribution.reference_peak_memory_bytes) == (4 * 35, 4 * 35)


SQUARE = """
import torch
class Square(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(context, grad):
        (x,) = context.saved_tensors
        return {gradient}
def kernel(x): return Square.apply(x)
"""


def test_gradients_are_judged_like_results() -> None:
    case = backward_case(Case("test", "aten.square.default", (Tensor((33, 17), "float32", Normal()),), timed=True))
    own, wrong, missing = (
        source(text, case.operator)
        for text in (
            SQUARE.format(gradient="2 * x * grad"),
            SQUARE.format(gradient="x * grad"),
            "def kernel(x): return x.detach() ** 2",
        )
    )
    right, half, none = records_of(*(Job(case, kernel, "quick") for kernel in (own, wrong, missing)))
    assert isinstance(right.verdict, Agrees), right.verdict
    assert right.measurement is not None
    assert isinstance(half.verdict, Disagrees)
    assert half.verdict.reason == "values"
    assert isinstance(none.verdict, Unsupported)
    assert "torch.autograd.Function" in none.verdict.reason


def test_a_selection_from_what_is_expanded_may_be_larger_than_its_arguments() -> None:
    tensors = (Tensor((60, 1, 60), "float32", Normal()), Tensor((60, 60), "bool", Booleans()))
    case = Case("test", "aten.masked_select.default", tensors, jitter=False)
    (verdict,) = judge_all(Job(case, source("def kernel(x, m): return x.masked_select(m)", case.operator)))
    assert isinstance(verdict, Agrees), verdict


MARKS = """
import builtins
print("marked before:", getattr(builtins, "mark", None))
builtins.mark = {number}
def kernel(x): return x.clamp(min=0)
"""


@pytest.mark.parametrize(("package", "seen"), [("mine", ["None", "1", "2"]), ("", ["None", "None", "None"])])
def test_only_implementations_of_one_package_share_a_process(package: str, seen: list[str]) -> None:
    marks = [msgspec.structs.replace(source(MARKS.format(number=number)), package=package) for number in (1, 2, 3)]
    with LocalExecutor(ExecutorOptions(device="cpu")).open() as session:
        records = [judge_one(session, Job(RELU, implementation, "quick")) for implementation in marks]
    assert [type(record.verdict) for record in records] == [Agrees] * 3
    assert [record.log_tail.strip() for record in records] == [f"marked before: {mark}" for mark in seen]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="with one core there is nothing to share out")
def test_judge_and_zygote_leave_the_cores_of_workers_alone_once_they_are_open() -> None:
    records_of(Job(RELU, HONEST, "quick"))
    assert _judge is not None
    assert _judge._process is not None
    available = tuple(sorted(os.sched_getaffinity(0)))
    workers, own = share_cores(available, 1, 0, 1)
    judge = _judge._process.pid
    (zygote,) = children(judge)
    assert os.sched_getaffinity(judge) == os.sched_getaffinity(zygote) == set(own)
    found = {core for pid in descendants(zygote)[1:] for core in os.sched_getaffinity(pid)}
    assert found == {*own, *workers}, "wardens stay with the judge, workers have their own"


def test_who_only_starts_judges_does_not_import_torch() -> None:
    script = (
        "import sys, torchstone.executors.local, torchstone.supervisor.worker_pool; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_dying_is_no_way_to_other_variants() -> None:
    """Sizes of 0 and 1 come in about four of five drawings; with a new one for each death most would get through."""
    dying = "    if 0 in x.shape or 1 in x.shape: os.kill(os.getpid(), 9)\n"
    shy = f"import os\ndef kernel(x):\n{dying}    return x.clamp(min=0)"
    case = Case("test", "aten.relu.default", (Tensor((64, 64), "float32", Normal()),))
    verdicts = judge_all(*(Job(case, source(f"# {number}\n{shy}"), "quick") for number in range(10)))
    assert sum(isinstance(verdict, Agrees) for verdict in verdicts) <= 6
    assert all(isinstance(verdict, Agrees | Crashed) for verdict in verdicts)
