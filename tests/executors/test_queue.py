"""The queue of jobs: nothing is lost or given twice, and candidates stay with the judge that has them."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from torchstone.executors.devices import Device
from torchstone.executors.queue import JobQueue
from torchstone.executors.worker_setup_for_jobs import worker_setup_for
from torchstone.judge_process.process import share_cores
from torchstone.schema import (
    Agrees,
    Case,
    Deadlines,
    ErrorStatistics,
    Implementation,
    Job,
    Normal,
    SourceFile,
    SourceFiles,
    Tensor,
    TimedOut,
    explain,
)

CPU = Device("cpu", "cpu", "cpu")
RIGHT = Agrees(ErrorStatistics(), 1)


def job(candidate: int, size: int) -> Job:
    source = SourceFiles((SourceFile("kernel.py", f"# {candidate}"),), "kernel")
    case = Case("test", "aten.relu.default", (Tensor((size,), "float32", Normal()),))
    return Job(case, Implementation("test", "aten.relu.default", source))


candidates = st.lists(st.integers(0, 6), min_size=1, max_size=30)


@given(candidates, st.integers(1, 5), st.data())
def test_every_job_is_given_once_and_candidates_are_shared_only_when_no_other_waits(
    chosen: list[int], judges: int, data: st.DataObject
) -> None:
    jobs = [job(candidate, size) for size, candidate in enumerate(chosen, 1)]
    queue = JobQueue(jobs)
    waiting = {each.key: each for each in jobs}
    in_hand: dict[int, tuple[Job, int]] = {}
    last: dict[int, str] = {}
    finished: list[str] = []
    while queue or in_hand:
        idle = [judge for judge in range(judges) if judge not in in_hand]
        if queue and idle and (not in_hand or data.draw(st.booleans())):
            judge = data.draw(st.sampled_from(idle))
            elsewhere = {held.implementation.key for held, _ in in_hand.values()}
            known = data.draw(st.sets(st.sampled_from([each.case.key for each in jobs])))
            taken, lost = queue.take(last.get(judge), elsewhere, known)
            key = taken.implementation.key
            waits = {each.implementation.key for each in waiting.values()}
            if last.get(judge) in waits:
                assert key == last[judge], "its worker is warm"
            elif waits - elsewhere:
                assert key not in elsewhere, "another candidate waits that nobody has begun"
            del waiting[taken.key]
            in_hand[judge], last[judge] = (taken, lost), key
        else:
            judge = data.draw(st.sampled_from(sorted(in_hand)))
            taken, lost = in_hand.pop(judge)
            if lost < 2 and data.draw(st.booleans()):
                queue.put_back(taken, lost + 1)
                waiting[taken.key] = taken
            else:
                finished.append(taken.key)
    assert sorted(finished) == sorted(each.key for each in jobs)
    assert not waiting


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_few_quick_jobs_of_another_judges_candidate_are_left_to_it() -> None:
    clock, jobs = Clock(), [job(1, size) for size in range(1, 8)]
    queue = JobQueue(jobs, worker_seconds=1.0, clock=clock)
    key = jobs[0].implementation.key
    first, _ = queue.take(None)
    assert queue.take(None, {key}) is None, "nothing is known of its jobs"
    clock.seconds = 0.1
    queue.judged(first, RIGHT)
    assert queue.take(None, {key}) is None, "six jobs of 0.1 s each"
    other = job(2, 1)
    queue.put([other])
    assert queue.take(None, {key}) == (other, 0), "a candidate that no judge has"
    assert queue.take(key, {key}) is not None, "its own judge goes on"


def test_jobs_that_take_long_are_shared_by_judges() -> None:
    clock, jobs = Clock(), [job(1, size) for size in range(1, 5)]
    queue = JobQueue(jobs, worker_seconds=1.0, clock=clock)
    key = jobs[0].implementation.key
    queue.take(None)
    clock.seconds = 0.4
    shared = queue.take(None, {key})
    assert shared is not None, "the first job has taken 0.4 s, and three wait"
    queue.put_back(*shared)
    assert queue.take(None) is not None


def test_one_job_that_was_over_at_once_does_not_keep_the_others_with_one_judge() -> None:
    clock, jobs = Clock(), [job(1, size) for size in range(1, 6)]
    queue = JobQueue(jobs, worker_seconds=1.0, clock=clock)
    key = jobs[0].implementation.key
    first, _ = queue.take(None)
    clock.seconds = 0.001
    queue.judged(first, RIGHT)
    assert queue.take(key) is not None
    assert queue.take(None, {key}) is None, "three jobs that seem to take a millisecond each"
    clock.seconds = 10.0
    assert queue.take(None, {key}) is not None, "the job under way has taken 10 s, and three wait"


def test_a_job_that_went_back_is_the_next_of_all() -> None:
    queue = JobQueue([job(1, 1), job(2, 2), job(2, 3)])
    first, _ = queue.take(None)
    second, _ = queue.take(None)
    queue.put_back(second, 1)
    assert queue.take(first.implementation.key) == (second, 1)


@given(st.integers(1, 64), st.integers(1, 16), st.integers(1, 8))
def test_workers_of_several_judges_meet_on_no_core_where_there_are_enough(
    cores: int, threads: int, places: int
) -> None:
    available = tuple(range(cores))
    shares = [share_cores(available, threads, place, places) for place in range(places)]
    for workers, own in shares:
        assert len(workers) == min(threads, cores)
        assert own
        if threads < cores:
            assert not set(workers) & set(own), "a judge that looks for answers again and again must not be in the way"
    if places * threads <= cores:
        used = [core for workers, _ in shares for core in workers]
        assert len(used) == len(set(used))
    if places * threads < cores:
        assert not {core for _, own in shares for core in own} & {core for workers, _ in shares for core in workers}


def test_of_several_judges_one_begins_with_the_most_work() -> None:
    small, large = (Case("x", "aten.relu.default", (Tensor((size,), "float32", Normal()),)) for size in (8, 1 << 22))
    light, heavy = (
        Implementation("x", case.operator, SourceFiles((SourceFile("k.py", f"# {number}"),), "kernel"))
        for number, case in enumerate((small, large))
    )
    jobs = [Job(small, light), Job(small, heavy), Job(large, heavy)]
    assert JobQueue(jobs).take(None)[0].implementation == light
    queue = JobQueue(jobs, heaviest_first=True)
    first, second = queue.take(None)[0], queue.take(heavy.key)[0]
    assert (first.implementation, second.implementation) == (heavy, heavy)
    assert (first.case, second.case) == (large, small), "what takes long must not come last"


def test_devices_are_opened_the_quick_way_unless_somebody_is_timed_with_care() -> None:
    quick = job(1, 1)
    timed = msgspec.structs.replace(quick.case, timed=True)
    assert worker_setup_for([quick]).few_queues
    for effort, measured, careful in (("quick", True, False), ("normal", False, False), ("normal", True, True)):
        one = msgspec.structs.replace(quick, case=timed, effort=effort, measured=measured)
        assert worker_setup_for([quick, one]).few_queues is not careful


def test_workers_find_imported_what_their_kernels_use() -> None:
    source = job(1, 1)
    aten = msgspec.structs.replace(
        source, implementation=msgspec.structs.replace(source.implementation, language="aten")
    )
    packaged = msgspec.structs.replace(
        source, implementation=msgspec.structs.replace(source.implementation, package="p")
    )
    assert worker_setup_for([aten]).preload == "torch"
    assert worker_setup_for([packaged]).preload == "triton"
    assert worker_setup_for([aten, job(2, 1)]).preload == "triton"
    compiling = SourceFiles((SourceFile("kernel.py", "kernel = torch.compile(torch.relu)"),), "kernel")
    asked = msgspec.structs.replace(source.implementation, origin=compiling)
    assert (
        worker_setup_for([aten, job(2, 1), msgspec.structs.replace(source, implementation=asked)]).preload == "compiler"
    )


def test_a_judge_begins_with_a_case_that_it_knows_among_candidates_with_as_much_to_do() -> None:
    jobs = [job(0, 8), job(1, 16), job(2, 16), job(3, 64), job(3, 32)]
    queue = JobQueue(jobs, heaviest_first=True)
    of_16, of_8 = jobs[1].case.key, jobs[0].case.key
    assert queue.take(None, known={of_16, of_8})[0] == jobs[3], "the heaviest comes first, known or not"
    assert queue.take(None, elsewhere={jobs[3].implementation.key}, known={of_8})[0] == jobs[1]
    assert JobQueue(jobs).take(None, known={of_16})[0] == jobs[1]
    assert JobQueue(jobs).take(None, known=())[0] == jobs[0]


LATE = TimedOut("compile", 60.0, 60.0)


def taken(queue: JobQueue) -> Job:
    found = queue.take(None)
    assert found is not None
    return found[0]


def test_after_two_timeouts_in_one_stage_the_other_cases_of_the_kernel_are_not_tried() -> None:
    other = job(1, 1)
    queue = JobQueue([*(job(0, size) for size in range(1, 6)), other])
    assert queue.judged(taken(queue), LATE) == []
    assert queue.judged(taken(queue), RIGHT) == []
    given_up = queue.judged(taken(queue), LATE)
    assert [each.key for each, _ in given_up] == [job(0, 4).key, job(0, 5).key]
    assert {explain(verdict) for _, verdict in given_up} == {
        "first call: not tried: two earlier cases of this kernel timed out"
    }
    assert taken(queue) == other
    assert not queue


def test_timeouts_in_different_stages_or_of_different_kernels_are_not_added_up() -> None:
    queue = JobQueue([job(0, 1), job(0, 2), job(1, 1), job(0, 3)])
    assert queue.judged(taken(queue), LATE) == []
    assert queue.judged(taken(queue), TimedOut("check", 60.0, 60.0)) == []
    third = queue.take(job(1, 1).implementation.key)
    assert third is not None
    assert queue.judged(third[0], LATE) == []
    assert len(queue) == 1


def test_a_case_that_shall_be_tried_is_and_so_is_the_kernel_when_it_comes_again() -> None:
    stubborn = msgspec.structs.replace(job(0, 9), try_every_case=True)
    patient = msgspec.structs.replace(job(0, 8), deadlines=Deadlines(compile_seconds=600))
    jobs = [job(0, size) for size in range(1, 4)]
    queue = JobQueue([*jobs, stubborn, patient])
    queue.judged(taken(queue), LATE)
    assert [each for each, _ in queue.judged(taken(queue), LATE)] == [jobs[2]]
    assert [taken(queue), taken(queue)] == [stubborn, patient]
    for each in (stubborn, patient):
        assert queue.judged(each, LATE) == []
    queue.put(jobs)
    assert queue.judged(taken(queue), LATE) == [], "what came before is forgotten"
    assert len(queue) == 2


def test_several_judges_give_up_a_kernel_together() -> None:
    queue = JobQueue([job(0, size) for size in range(1, 7)], heaviest_first=True)
    in_hand = [taken(queue), taken(queue), taken(queue)]
    assert queue.judged(in_hand[0], LATE) == []
    queue.put_back(in_hand[1], 1)
    assert len(queue.judged(in_hand[2], LATE)) == 4, "the one that was put back too"
    assert not queue


def test_a_job_that_is_withdrawn_under_way_is_unwanted_until_it_comes_again() -> None:
    now = [0.0]
    queue = JobQueue([job(0, 1), job(0, 2)], clock=lambda: now[0])
    taken, _ = queue.take(None)
    now[0] = 3.0
    assert queue.unwanted_seconds(taken) is None
    assert queue.withdraw([job(0, 1), job(0, 2)]) == [job(0, 2)]
    assert queue.unwanted_seconds(taken) == 3.0
    queue.put([taken])
    assert queue.unwanted_seconds(taken) is None
    queue.withdraw([taken])
    queue.drop(taken)
    assert queue.unwanted_seconds(taken) is None
    assert (len(queue), queue.take(None)) == (0, None)
