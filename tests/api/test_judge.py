"""The long-lived judge: with a fake executor for what it promises, with real processes for what may go wrong."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

import made_records as making
import torchstone
from torchstone.errors import InfrastructureError, UsageError
from torchstone.executors import FakeExecutor, local
from torchstone.executors.devices import Device
from torchstone.executors.judge_handle import JudgeProcess
from torchstone.processes.resident_memory import resident_bytes
from torchstone.schema import (
    Agrees,
    Case,
    Crashed,
    Disagrees,
    ErrorStatistics,
    Job,
    Measurement,
    Normal,
    Tensor,
    Unjudged,
    Verdict,
    explain,
)
from torchstone.supervisor.ptrace_freezing import descendants

RELU = "aten.relu.default"
AGREES = Agrees(ErrorStatistics(), 1)
CASES = tuple(Case("mine", RELU, (Tensor((size,), "float32", Normal()),)) for size in (5, 7))


def text(number: int) -> str:
    return f"# {number}\ndef relu(x): return x.clamp(min=0)\n"


def fake(decide: object) -> torchstone.Judge:
    return torchstone.Judge(device="cpu", cases=CASES, executor=FakeExecutor(decide))  # type: ignore[arg-type]


def test_identical_work_in_flight_is_judged_once_and_every_caller_gets_it() -> None:
    judged: Counter[str] = Counter()
    go = threading.Event()

    def decide(job: Job) -> Verdict:
        go.wait(10)
        judged[job.key] += 1
        return AGREES

    with fake(decide) as judge:
        futures = [judge.submit(text(0)) for _ in range(20)]
        go.set()
        assert all(future.result(10).agrees for future in futures)
    assert sorted(judged.values()) == [1, 1]


def test_a_cancelled_future_withdraws_its_waiting_jobs() -> None:
    judged: list[str] = []
    began, go = threading.Event(), threading.Event()

    def decide(job: Job) -> Verdict:
        began.set()
        go.wait(10)
        judged.append(job.implementation.key)
        return AGREES

    with fake(decide) as judge:
        first, second, third = (judge.submit(text(number)) for number in range(3))
        began.wait(10)
        assert second.cancel()
        go.set()
        assert first.result(10).agrees
        assert third.result(10).agrees
        with pytest.raises(CancelledError):
            second.result(0)
    assert len(set(judged)) == 2


def test_submission_waits_while_the_queue_is_full_in_threads_and_in_tasks() -> None:
    go = threading.Event()

    def decide(job: Job) -> Verdict:
        go.wait(10)
        return AGREES

    executor = FakeExecutor(decide)
    with torchstone.Judge(device="cpu", cases=CASES, executor=executor, queue_size=2) as judge:
        for number in range(2):
            judge.submit(text(number))
        entered: list[object] = []
        waiter = threading.Thread(target=lambda: entered.append(judge.submit(text(2))))
        waiter.start()
        waiter.join(0.2)
        assert not entered, "the queue is full"

        async def many() -> list[torchstone.Evaluation]:
            asked = [asyncio.create_task(judge.aevaluate(text(number))) for number in range(3, 9)]
            await asyncio.sleep(0.1)
            asked.pop().cancel()
            go.set()
            return await asyncio.gather(*asked)

        assert all(result.agrees for result in asyncio.run(many()))
        waiter.join(10)
        assert len(entered) == 1
        assert len(judge.evaluate([text(number) for number in range(20, 30)])) == 10, "no place was lost"


def test_after_a_failure_of_the_machine_futures_have_the_error_and_the_judge_goes_on() -> None:
    failing = [True]

    def decide(job: Job) -> Verdict:
        if failing:
            failing.pop()
            raise InfrastructureError("no device.")
        return AGREES

    with fake(decide) as judge:
        with pytest.raises(InfrastructureError, match="no device"):
            judge.evaluate(text(0))
        assert judge.evaluate(text(0)).agrees
    with pytest.raises(UsageError, match="closed"):
        judge.submit(text(0))


def test_evaluations_say_what_a_loop_over_candidates_needs() -> None:
    wrong = Disagrees("check", "values", "at 0")

    def decide(job: Job) -> Verdict:
        return wrong if "# 1" in str(job.implementation) else AGREES

    with fake(decide) as judge:
        right, bad = judge.evaluate([text(0), text(1)])
        assert (right.verdict, bad.verdict) == ("agrees", "disagrees")
        assert right.speedup_low is None
        assert json.loads(json.dumps(bad.to_dict()))["cases"][0]["verdict"] == "disagrees"
        found = dict(judge.stream([text(0), (text(1), RELU)], RELU))
        assert [found[place].agrees for place in (0, 1)] == [True, False]
        with pytest.raises(UsageError, match="device cannot differ"):
            judge.submit(text(0), device="cuda" if judge._device == "cpu" else "cpu")


def test_kept_verdicts_are_used_again_but_never_those_of_a_failed_machine(tmp_path: Path) -> None:
    verdicts: list[Verdict] = [Unjudged("lost"), Unjudged("lost"), AGREES, AGREES]
    with fake(lambda job: verdicts.pop(0)) as judge:
        assert judge.check(text(0), verdict_cache=tmp_path).verdict == "unjudged"
        assert not judge.check(text(0), verdict_cache=tmp_path).from_cache
        assert judge.check(text(0), verdict_cache=tmp_path).from_cache
        (kept,) = tmp_path.iterdir()
        kept.write_text("[")
        verdicts += [AGREES, AGREES]
        assert not judge.check(text(0), verdict_cache=tmp_path).from_cache, "a broken file is judged again"


def test_kept_verdicts_are_used_again_for_many_operators_at_once(tmp_path: Path) -> None:
    judged: list[str] = []

    def decide(job: Job) -> Verdict:
        judged.append(job.key)
        return AGREES

    with fake(decide) as judge:
        first, second = (judge.evaluate_many({RELU: text(0)}, verdict_cache=tmp_path)[RELU] for _ in range(2))
    assert not first.from_cache
    assert second.from_cache
    assert second.agrees
    assert len(judged) == len(CASES)


def test_a_judge_is_an_async_context_manager() -> None:
    async def both() -> tuple[torchstone.Judge, list[torchstone.Evaluation]]:
        async with fake(lambda job: AGREES) as judge:
            found = await asyncio.gather(judge.aevaluate(text(0)), judge.aevaluate(text(1)))
        return judge, found

    judge, found = asyncio.run(both())
    assert all(each.agrees for each in found)
    with pytest.raises(UsageError, match="closed"):
        judge.submit(text(0))


def varied(rounds: int) -> Measurement:
    """Rounds that differ a little."""
    whole = making.measurement(rounds=rounds)
    longer = (replace(b, elapsed_ns=b.elapsed_ns * (100 + b.round) // 100) for b in whole.blocks if b.party != "shim")
    return replace(whole, blocks=(*longer, *(b for b in whole.blocks if b.party == "shim")))


def test_an_evaluation_has_the_speed_of_each_case_and_the_lower_end_of_their_mean() -> None:
    cases = making.case(size=4), making.case(size=5), making.case(size=6)
    times = varied(5), varied(7), varied(1)
    records = [making.record(of=case, measured=each) for case, each in zip(cases, times, strict=True)]
    found = torchstone.Evaluation(RELU, tuple(records))
    told = json.loads(json.dumps(found.to_dict()))
    assert found.speedup is not None
    assert found.speedup_low is not None
    assert found.speedup == pytest.approx(2.0, rel=0.05)
    assert found.speedup_low < found.speedup
    assert told["speedup_low"] == found.speedup_low
    about = pytest.approx(2.0, rel=0.05)
    assert [case["speedup"] for case in told["cases"]] == [about, about, None]
    assert told["cases_unresolved"] == 1
    assert "are needed" in told["cases"][2]["unresolved"]


def processes_of_ours() -> set[int]:
    """Judges and what they have started, below this process."""
    found = set()
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            if b"torchstone" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(pid)
    return found


def test_the_judge_of_the_last_call_stays_warm_until_it_is_closed() -> None:
    torchstone.close()
    before = processes_of_ours()
    assert torchstone.check(text(0), RELU, cases=CASES, device="cpu", effort="quick").agrees
    warm = processes_of_ours() - before
    (judge,) = [pid for pid in warm if b"judge_process.process" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert torchstone.check(text(1), RELU, cases=CASES, device="cpu", effort="quick").agrees
    assert judge in processes_of_ours(), "no judge was started for the second kernel"
    torchstone.close()
    wait_until(lambda: not processes_of_ours() - before)


def test_processes_end_after_a_while_without_work_and_start_again_with_the_next_kernel() -> None:
    """With them goes the device memory that they hold."""
    before = processes_of_ours()
    with torchstone.Judge(device="cpu", effort="quick", cases=CASES, idle_seconds=1.0) as judge:
        assert judge.check(text(0)).agrees
        assert processes_of_ours() - before
        wait_until(lambda: not processes_of_ours() - before)
        assert judge.check(text(1)).agrees


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_an_evaluation_is_printed_on_one_line() -> None:
    timed = making.record(of=making.case(timed=True), measured=making.measurement())
    right = torchstone.Evaluation(RELU, (timed, making.record()))
    wrong = torchstone.Evaluation(RELU, (timed, making.record(Crashed("check", "exception", "no"))), from_cache=True)
    assert repr(right) == f"<Evaluation of {RELU}: agrees, 2 of 2 cases, speedup 2.00x (2.00 to 2.00)>"
    assert str([wrong]) == f"[<Evaluation of {RELU}: crashed, 1 of 2 cases, from cache>]"


def test_a_missing_operator_is_asked_for() -> None:
    with torchstone.Judge(device="cpu") as judge:
        with pytest.raises(UsageError, match=r"Name it: submit\(kernel, 'aten\.relu\.default'\)"):
            judge.submit(text(0))
        with pytest.raises(UsageError, match=r"not of one operator \(none\)"):
            judge.submit(text(0), cases=())


def test_a_verdict_cache_that_cannot_be_written_is_a_warning_and_the_result_stands(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file, not a folder")
    with fake(lambda job: AGREES) as judge, pytest.warns(UserWarning, match="verdict cache cannot be written"):
        assert judge.check(text(0), verdict_cache=taken).agrees


def test_a_judge_that_is_killed_is_replaced_and_one_of_two_devices_may_die(monkeypatch: pytest.MonkeyPatch) -> None:
    two = [Device("cpu", "cpu:0", "test-0"), Device("cpu", "cpu:1", "test-1")]
    monkeypatch.setattr(local, "find_devices", lambda wanted: two)
    start, give, killed = JudgeProcess.start, JudgeProcess.give, []

    def start_and_kill(self: JudgeProcess, *given: object) -> None:
        start(self, *given)  # type: ignore[arg-type]
        if self.device == two[1]:
            assert self._process is not None
            self._process.kill()

    def give_and_kill(self: JudgeProcess, job: Job, lost: int) -> None:
        give(self, job, lost)
        if not killed:
            assert self._process is not None
            killed.append(self._process.pid)
            os.kill(self._process.pid, signal.SIGKILL)

    monkeypatch.setattr(JudgeProcess, "start", start_and_kill)
    monkeypatch.setattr(JudgeProcess, "give", give_and_kill)
    with torchstone.Judge(device="cpu", cases=CASES, effort="quick") as judge:
        results = judge.check([text(number) for number in range(3)])
        assert [result.verdict for result in results] == ["agrees"] * 3
        assert {record.device for result in results for record in result.records} == {"cpu:0"}
        assert sum(record.attempts - 1 for result in results for record in result.records) == 1


@pytest.mark.parametrize("judges", [1, 2])
def test_a_kernel_that_hangs_costs_two_deadlines_and_is_tried_again_when_it_comes_again(judges: int) -> None:
    cases = tuple(Case("mine", RELU, (Tensor((size,), "float32", Normal()),)) for size in range(1, 9))
    stuck = "import time\ndef relu(x): time.sleep(60)\n"
    deadlines = torchstone.Deadlines(20, 0.4, 20, 20)
    settings = {"device": "cpu", "effort": "quick", "judges": judges, "deadlines": deadlines, "cases": cases}
    with torchstone.Judge(**settings) as judge:
        hanging = judge.submit(f"# 0\n{stuck}", RELU)
        assert judge.check(text(0), RELU).agrees
        for result in (hanging.result(), judge.check(f"# 0\n{stuck}", RELU)):
            reasons = [explain(record.verdict) for record in result.records]
            assert result.verdict == "timed_out"
            tried = [reason for reason in reasons if "stopped after 0.4 s (limit 0.4 s)" in reason]
            assert len(tried) in (2, 1 + judges), reasons
            left = {reason for reason in reasons if reason not in tried}
            assert left == {"first call: not tried: two earlier cases of this kernel timed out"}
        if judges == 1:
            result = judge.check(f"# 1\n{stuck}", RELU, try_every_case=True)
            assert not any("not tried" in explain(record.verdict) for record in result.records)


def test_a_kernel_that_does_not_load_is_tried_again_when_it_comes_again() -> None:
    # By the time of the processor: a worker that stands still while another judge measures must not get nearer its end.
    wait = "import time\nend = time.process_time() + 0.8\nwhile time.process_time() < end: pass\n"
    slow = f"{wait}def relu(x): return x.clamp(min=0)\n"
    hurried, patient = (torchstone.Deadlines(seconds, 20, 20, 20) for seconds in (0.4, 20))
    with torchstone.Judge(device="cpu", effort="quick", cases=CASES) as judge:
        first, second = (judge.check(slow, RELU, deadlines=hurried) for _ in range(2))
        assert first.verdict == second.verdict == "timed_out"
        assert judge.check(slow, RELU, deadlines=patient).agrees


def resident_mib(pids: list[int]) -> int:
    """Of the largest of these processes."""
    return max((resident_bytes(pid) for pid in pids), default=0) >> 20


@pytest.mark.slow
def test_a_thousand_submissions_from_fifty_threads_resolve_exactly_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import random

    monkeypatch.setattr(local, "MOST_UNJUDGED_IN_A_ROW", 1000)
    kernels = {
        "agrees": "def relu(x): return x.clamp(min=0)",
        "disagrees": "def relu(x): return x + 1",
        "crashed": "def relu(x): import os; os.abort()",
        "timed_out": "def relu(x):\n    while True: pass",
    }
    flood = "def relu(x):\n    for _ in range(50): print('x' * 1000)\n    return x.clamp(min=0)"
    ends = threading.Event()
    resolved: Counter[int] = Counter()
    verdicts: Counter[str] = Counter()
    sizes: list[tuple[int, int]] = []
    """In MiB: of this process, and of the larger judge."""
    lock = threading.Lock()
    deadlines = torchstone.Deadlines(20, 4, 4, 4)
    with torchstone.Judge(device="cpu", cases=CASES[:1], effort="quick", judges=2, deadlines=deadlines) as judge:

        def alive() -> list[JudgeProcess]:
            dispatch = judge._session_thread
            judges = [] if dispatch is None else dispatch._session._judges  # type: ignore[attr-defined]
            return [each for each in judges if each._process is not None and each.opened]

        def one(number: int) -> None:
            kind = "timed_out" if number % 50 == 0 else ("agrees", "disagrees", "crashed", "flood")[number % 4]
            source = f"# {number}\n{flood if kind == 'flood' else kernels[kind]}"
            future = judge.submit(source, purpose="check")
            future.add_done_callback(lambda _: resolved.update([number]))
            verdict = future.result().verdict
            assert verdict in ("unjudged", "agrees" if kind == "flood" else kind), (kind, verdict)
            with lock:
                verdicts[verdict] += 1
                if verdicts.total() % 100 == 0:
                    pids = [each._process.pid for each in alive() if each._process is not None]
                    sizes.append((resident_mib([os.getpid()]), resident_mib(pids)))

        def kill() -> None:
            while not ends.wait(random.uniform(5, 15)):
                for chosen in random.sample(alive(), min(1, len(alive()))):
                    if chosen._process is not None:
                        chosen._process.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            with ThreadPoolExecutor(50) as threads:
                list(threads.map(one, range(1000)))
        finally:
            ends.set()
            killer.join()
    print(verdicts, sizes)
    assert sorted(resolved.elements()) == list(range(1000)), "each exactly once"
    assert verdicts.total() == 1000
    assert verdicts["unjudged"] < 10
    early, late = sizes[2], sizes[-1]
    assert late[0] - early[0] < 20, sizes
    assert late[1] - max(judges for _, judges in sizes[:4]) < 40, sizes
    time.sleep(0.5)
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(os.getpid())]
    assert not any(b"torchstone" in command for command in commands)
