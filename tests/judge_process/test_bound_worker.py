"""A worker bound to a case: what fails while it is made leaves nothing behind, and warm caches cost no core."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from torchstone.judge_process import bound_worker, call_buffers
from torchstone.judge_process.bound_worker import BoundWorker
from torchstone.judge_process.call_layout import CallLayout
from torchstone.judge_process.short_block_timing import timed
from torchstone.judging import Reference, draw_call, draw_calls
from torchstone.protocol.commands import Load
from torchstone.schema import Case, Normal, Tensor, torchs_own
from torchstone.supervisor.pausable_worker import PausableWorker
from torchstone.supervisor.worker_pool import WorkerOptions, WorkerPool

CPU = torch.device("cpu")
CASE = Case("tests", "aten.relu.default", (Tensor((33, 65), "float32", Normal()),))
CORES = sorted(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def layout() -> CallLayout:
    return CallLayout(CASE, Reference(CASE, CPU).expect(draw_call(CASE, 1, CPU)))


@pytest.fixture(scope="module")
def worker() -> Iterator[PausableWorker]:
    """Bound to the last core, with torch's own operator loaded."""
    pool = WorkerPool(WorkerOptions(spares=0, cores=(CORES[-1],)))
    taken = pool.take_own()
    try:
        taken.ask(Load("token", torchs_own(CASE)), time.monotonic() + 60)
        taken.freeze()
        yield taken
    finally:
        taken.kill()
        pool.close()


def open_arenas() -> int:
    """Memory files of the judge that are open in this process."""
    names = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            names.append(os.readlink(each))
        except FileNotFoundError:  # that of the folder itself
            continue
    return sum("torchstone-arena" in name for name in names)


def lacking(*_: Any) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize(
    ("module", "name"), [(call_buffers, "_garbage"), (bound_worker, "open_reader"), (bound_worker, "CoreTime")]
)
def test_a_worker_that_cannot_be_bound_leaves_no_arena_behind(
    module: Any, name: str, worker: PausableWorker, layout: CallLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_arenas()
    monkeypatch.setattr(worker, "reader", None)
    monkeypatch.setattr(module, name, lacking)
    with pytest.raises(torch.OutOfMemoryError):
        BoundWorker(worker, CASE, layout, 2, CPU)
    assert open_arenas() == before


BLOCKS: dict[str, Callable[[BoundWorker, float], object]] = {
    "call": lambda bound, deadline: bound.call(2, deadline),
    "time": lambda bound, deadline: bound.time(2, deadline, pretend=False),
    "shim": lambda bound, deadline: bound.time(2, deadline, pretend=True),
}


@pytest.mark.skipif(len(CORES) < 2, reason="the worker and the judge need a core each")
@pytest.mark.parametrize("kind", BLOCKS)
def test_the_judge_leaves_the_workers_core_before_the_clock_runs(
    kind: str, worker: PausableWorker, layout: CallLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    judges, where = set(CORES[:-1]), list[set[int]]()
    thaw = worker.thaw
    monkeypatch.setattr(worker, "thaw", lambda: (where.append(os.sched_getaffinity(0)), thaw()))
    bound = BoundWorker(worker, CASE, layout, 2, CPU)
    os.sched_setaffinity(0, judges)
    try:
        bound.bind(time.monotonic() + 60)
        where.clear()
        with timed([bound], "warm", by_core_time=False):
            for seed in range(3):
                bound.present(draw_calls(CASE, seed, 2, CPU))
                assert os.sched_getaffinity(0) == {CORES[-1]}, "arguments are written on the worker's core"
                BLOCKS[kind](bound, time.monotonic() + 60)
        bound.release(time.monotonic() + 60)
    finally:
        os.sched_setaffinity(0, CORES)
        bound.close()
    assert where[:3] == [judges] * 3
