"""Zygotes that are forked from one process, with real processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from torchstone.protocol.replies import Done
from torchstone.supervisor.worker_pool import WorkerOptions, WorkerPool
from torchstone.supervisor.zygote_fork_server import ZygoteForkServer
from worker.conftest import LIMITS, load

PRINTS_VARIABLE = "import os\nprint(os.environ.get('CUDA_VISIBLE_DEVICES'), flush=True)\ndef kernel(x): return x"


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ZygoteForkServer]:
    found = ZygoteForkServer("cpu")
    yield found
    found.stop()


@contextmanager
def nursed(fork_server: ZygoteForkServer, **variables: str) -> Iterator[WorkerPool]:
    pool = WorkerPool(WorkerOptions(limits=LIMITS, spares=0), fork_server.order(variables))
    pool.start()
    try:
        yield pool
    finally:
        pool.close()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_every_judge_gets_a_zygote_with_its_own_variables_and_none_is_started(fork_server: ZygoteForkServer) -> None:
    with nursed(fork_server, CUDA_VISIBLE_DEVICES="3") as one, nursed(fork_server, CUDA_VISIBLE_DEVICES="5") as other:
        for pool, device in ((one, "3"), (other, "5")):
            worker = pool.take()
            assert isinstance(load(worker, PRINTS_VARIABLE), Done)
            assert worker.log_tail.strip() == device
            worker.kill()
            assert pool._zygote._process is None, "it is a fork"
        assert len(children(fork_server._process.pid)) == 2
        assert one._folder != other._folder
    assert not Path(one._folder).exists()


def test_without_its_zygote_a_judge_starts_one() -> None:
    short = ZygoteForkServer("cpu")
    with nursed(short) as pool:
        pool.take().kill()
        short.stop()
        pool.take().kill()  # the zygote outlives the fork server
        assert pool._zygote._process is None
        pool._zygote.stop()
        pool.take().kill()
        assert pool._zygote._process is not None
    assert short.order({}) is None
