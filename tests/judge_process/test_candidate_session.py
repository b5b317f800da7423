"""A candidate is held from the moment it has been loaded."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import torch

from torchstone.judge_process.candidate_session import CandidateSession
from torchstone.judge_process.kept_builds import KeptBuilds
from torchstone.judge_process.measured_parties import FreshCalls
from torchstone.judge_process.measuring_lane import MeasuringLane
from torchstone.judge_process.randomness_across_retries import RepeatableRandomness
from torchstone.judge_process.resources import JudgeResources
from torchstone.judging import Reference
from torchstone.schema import Case, Implementation, Job, Normal, SourceFile, SourceFiles, Tensor
from torchstone.supervisor.worker_pool import WorkerOptions, WorkerPool

TICKING = """
import threading, time
def tick():
    while True:
        print(".", end="", flush=True)
        time.sleep(0.002)
threading.Thread(target=tick, daemon=True).start()
def kernel(x): return x
"""


def test_what_a_candidate_starts_while_it_loads_stands_still_afterwards(tmp_path: Path) -> None:
    case = Case("test", "aten.relu.default", (Tensor((5, 7), "float32", Normal()),))
    implementation = Implementation("test", case.operator, SourceFiles((SourceFile("k.py", TICKING),), "kernel"))
    pool = WorkerPool(WorkerOptions(spares=0))
    worker = pool.take()
    try:
        parts = {"lane": MeasuringLane("test", tmp_path), "pool": pool, "worker_for": lambda _: (worker, True)}
        resources = cast(JudgeResources, SimpleNamespace(**parts, builds=KeptBuilds(), signs_of_life=0))
        CandidateSession(Job(case, implementation), resources).take_worker()
        worker.clear_log()
        time.sleep(0.1)
        assert worker.log_tail == ""
        assert resources.signs_of_life == 1
    finally:
        worker.kill()
        pool.close()


def test_who_is_tried_again_is_tried_on_the_same_values() -> None:
    randomness = RepeatableRandomness()
    first = [randomness.draw() for _ in range(3)]
    randomness.begin_again()
    assert [randomness.draw() for _ in range(3)] == first
    assert randomness.draw() not in first


def test_nothing_that_is_timed_comes_again_for_who_is_tried_again() -> None:
    """It has met what was timed, may have left itself a note, and would only have to read it."""
    case = Case("test", "aten.relu.default", (Tensor((5, 7), "float32", Normal()),))
    job = Job(case, Implementation("test", case.operator, SourceFiles((SourceFile("k.py", TICKING),), "kernel")))
    randomness, reference = RepeatableRandomness(), Reference(case, torch.device("cpu"))
    resources = cast(JudgeResources, SimpleNamespace())
    tries = []
    for _ in range(2):
        randomness.begin_again()
        session = CandidateSession(job, resources, randomness)
        checked, _ = session.draw(reference, 1)
        timed, _ = FreshCalls(session, reference).fresh(1)
        tries.append([calls[0].tensors[0].storage for calls in (checked, timed)])
    (checked_first, timed_first), (checked_again, timed_again) = tries
    assert torch.equal(checked_first, checked_again)
    assert not torch.equal(timed_first, timed_again)
