"""Workers that stand still while they are waited for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from torchstone.protocol.replies import Done
from torchstone.supervisor.pausable_worker import PausableWorker
from torchstone.supervisor.worker_failures import WorkerTimeoutError
from torchstone.supervisor.worker_pool import WorkerPool
from worker.conftest import load

SPINS = (
    "import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass\ndef kernel(x): return x"
)


def processor_seconds(worker: PausableWorker) -> float:
    fields = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_a_pause_costs_the_worker_no_time(pool: WorkerPool) -> None:
    worker = pool.take()
    progress: list[float] = []

    def pause() -> None:
        if not progress:
            worker.freeze()
            progress.append(processor_seconds(worker))
            time.sleep(1.5)
            progress.append(processor_seconds(worker))
            worker.thaw()

    try:
        with worker.polling(pause) as pauses:
            assert isinstance(load(worker, SPINS.format(seconds=0.3), 1.4), Done)
        assert progress[0] == progress[1], "it stood still"
        assert pauses.seconds >= 1.5
    finally:
        worker.kill()


def test_the_deadline_holds_besides_pauses(pool: WorkerPool) -> None:
    worker = pool.take()
    try:
        began = time.monotonic()
        with worker.polling(lambda: None), pytest.raises(WorkerTimeoutError):
            load(worker, SPINS.format(seconds=60), 0.5)
        assert 0.5 <= time.monotonic() - began < 2
        assert not worker.is_in_kernel()
    finally:
        worker.kill()
