"""A real zygote with real workers, started once for all tests of this folder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from torchstone.protocol.commands import Load
from torchstone.schema import Implementation, Limits, SourceFile, SourceFiles
from torchstone.supervisor.worker_handle import Worker
from torchstone.supervisor.worker_pool import WorkerOptions, WorkerPool

LIMITS = Limits(memory_bytes=2 << 30, scratch_bytes=64 << 20, file_bytes=32 << 20, processes=64)


@pytest.fixture(scope="session")
def pool() -> Iterator[WorkerPool]:
    workers = WorkerPool(WorkerOptions(limits=LIMITS, spares=0))
    workers.start()
    yield workers
    workers.close()


@pytest.fixture
def worker(pool: WorkerPool) -> Iterator[Worker]:
    fresh = pool.take()
    yield fresh
    fresh.kill()


def implementation(source: str, entry: str = "kernel") -> Implementation:
    return Implementation("test", "aten.relu.default", SourceFiles((SourceFile("kernel.py", source),), entry))


def load(worker: Worker, source: str, seconds: float = 20.0) -> Any:
    return worker.ask(Load("token", implementation(source)), time.monotonic() + seconds)


@pytest.fixture
def inside(worker: Worker) -> Callable[[str], Any]:
    """Evaluate an expression inside a worker; an OSError comes back as its name."""

    def run(expression: str) -> Any:
        source = f"""
import ctypes, json, mmap, os, resource, signal, socket, subprocess, sys
try:
    answer = {expression}
except (OSError, ValueError, MemoryError) as error:
    answer = type(error).__name__
print("ANSWER", json.dumps(answer, default=repr), flush=True)
def kernel(x): return x
"""
        reply = load(worker, source)
        for line in worker.log_tail.splitlines():
            if line.startswith("ANSWER "):
                return json.loads(line.removeprefix("ANSWER "))
        raise AssertionError(f"no answer: {reply}")

    return run
