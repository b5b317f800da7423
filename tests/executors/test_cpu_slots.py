"""Two devices on one machine: slots of the CPU, each with cores and a lane of its own."""

from __future__ import annotations

import os
import signal
from collections import Counter

from jobs import job

from torchstone.executors import ExecutorOptions
from torchstone.executors.devices import cpu_slots
from torchstone.executors.local import LocalExecutor
from torchstone.judge_process.process import share_cores
from torchstone.schema import Record, verdict_name

_MOST_JOBS = 600
"""A new judge starts within a few seconds, in which the other one judges five jobs a second."""
TWO = ExecutorOptions(device="cpu", slots=2)


def test_slots_have_lanes_and_cores_of_their_own() -> None:
    first, second = cpu_slots(2)
    assert first.name != second.name
    assert first.label == second.label == "cpu"
    cores = [share_cores(tuple(range(8)), 1, slot.slot, slot.slots)[0] for slot in (first, second)]
    assert set(cores[0]).isdisjoint(cores[1])
    assert cpu_slots(2, only=1) == [second]


def test_a_device_that_dies_and_comes_back_loses_nothing() -> None:
    """Jobs come until the second device has had its judge killed, and has judged with a new one."""
    jobs = [job("right", number, before="import time; time.sleep(0.1)") for number in range(4)]
    with LocalExecutor(TWO).open() as session:
        second = session._judges[1]
        session.submit(jobs)
        found: list[Record] = []
        killed: int | None = None
        finished = came_back = False
        for _, record in session:
            found.append(record)
            process = second._process
            if killed is None and second.job is not None and process is not None:
                killed = process.pid
                os.kill(killed, signal.SIGKILL)
            is_back = killed is not None and process is not None and process.pid != killed and second.job is not None
            came_back = came_back or is_back
            if (came_back or len(jobs) > _MOST_JOBS) and not finished:
                finished = True
                session.finish()
            elif not finished:
                more = job("right", len(jobs), before="import time; time.sleep(0.1)")
                jobs.append(more)
                session.submit([more])
    assert came_back, "the device that died has a new judge"
    assert Counter(record.job_key for record in found) == Counter(each.key for each in jobs)
    assert {verdict_name(record.verdict) for record in found} == {"agrees"}
    assert sorted(record.attempts for record in found) == [1] * (len(jobs) - 1) + [2]
