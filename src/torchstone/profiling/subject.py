"""``python -m torchstone.profiling.subject ORDER_FILE``: runs a kernel or a benchmark under a profiler. UNTRUSTED.

Started by ncu or nsys. Not a worker: those tools inject a library, open sockets and write files, which the sandbox
refuses. The code has the user's rights. A kernel's only limits are a scratch folder, a cleaned environment, no large
files, and a deadline. A benchmark is the user's own code: it gets the user's folder and environment, and a deadline.

Only the calls between cudaProfilerStart and cudaProfilerStop are profiled. Loading, compiling and warming up come
before.
"""

from __future__ import annotations

import contextlib
import resource
import secrets
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from torchstone import operators
from torchstone.benchmarks.loading import load_benchmark
from torchstone.benchmarks.profiled_calls import make_calls, marked
from torchstone.benchmarks.seeding import be_deterministic, seed_everything
from torchstone.judging import DrawnCall, draw_calls
from torchstone.profiling.subject_messages import (
    OUTCOME_FILE,
    BenchmarkFile,
    KernelOnCase,
    ProfileOrder,
    ProfileOutcome,
)
from torchstone.schema import decode, encode, tensors_of
from torchstone.worker.loading import load

_INPUT_BYTES = 2 << 30
"""Most bytes of the inputs of all calls together. If they would exceed it, inputs are used more than once."""


def main() -> int:
    """Carry out the order and write the outcome to a file."""
    path = Path(sys.argv[1])
    order = decode(path.read_bytes(), ProfileOrder)
    outcome = path.with_name(OUTCOME_FILE)
    _set_limits(order)
    crashed = ProfileOutcome(False, "its process ended before the calls were made")  # remains if it crashes
    outcome.write_bytes(encode(crashed))
    try:
        _run(order, path.parent)
    except BaseException as error:  # noqa: BLE001 - a kernel may raise anything, SystemExit included
        traceback.print_exception(error)
        outcome.write_bytes(encode(ProfileOutcome(False, f"{type(error).__name__}: {error}"[:2000])))
        return 1
    outcome.write_bytes(encode(ProfileOutcome(True)))
    return 0


def _set_limits(order: ProfileOrder) -> None:
    # A deadline, not PR_SET_PDEATHSIG: the parent is a thread of the tool, which may end earlier.
    signal.alarm(order.seconds)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if isinstance(order.what, BenchmarkFile):
        return
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = order.file_bytes if hard == resource.RLIM_INFINITY else min(order.file_bytes, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))


def _run(order: ProfileOrder, scratch: Path) -> None:
    if isinstance(order.what, BenchmarkFile):
        _run_benchmark(order.what, order)
    else:
        _run_kernel(order.what, order, scratch)


def _run_benchmark(what: BenchmarkFile, order: ProfileOrder) -> None:
    """Run a benchmark as the harness does, without timing."""
    on_cuda = order.device_type == "cuda"
    marks = on_cuda and what.marks_ranges
    if what.deterministic:
        be_deterministic()
    seed_everything(what.seed)
    benchmark = load_benchmark(what.path, what.root)
    seed_everything(what.seed)
    with marked("setup", marks):
        benchmark.setup()
    watching = _cuda_profiler_range() if on_cuda else contextlib.nullcontext()
    make_calls(benchmark, order.warmup_calls, order.calls, watching, on_cuda, marks)
    benchmark.teardown()


@contextlib.contextmanager
def _cuda_profiler_range() -> Iterator[None]:
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    yield
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def _run_kernel(what: KernelOnCase, order: ProfileOrder, scratch: Path) -> None:
    torch.set_num_threads(order.threads)
    device = torch.device("cpu") if order.device_type == "cpu" else torch.device(order.device_type, 0)
    total = order.warmup_calls + order.calls
    sets = draw_calls(what.case, secrets.randbits(63), min(total, _fitting_sets(what)), device)
    candidate = load(what.implementation, scratch)
    drawn = [sets[index % len(sets)] for index in range(total)]
    for call in drawn[: order.warmup_calls]:
        candidate(*call.args, **call.kwargs)
    _make_profiled_calls(candidate, drawn[order.warmup_calls :], on_cuda=device.type == "cuda")


def _fitting_sets(what: KernelOnCase) -> int:
    needed = sum(
        operators.storage_extent(recipe) * operators.torch_dtype(recipe.dtype).itemsize
        for recipe in tensors_of(what.case)
    )
    return max(1, _INPUT_BYTES // max(1, needed))


def _make_profiled_calls(candidate: Callable[..., Any], calls: list[DrawnCall], on_cuda: bool) -> None:
    """Make the profiled calls, each in its own NVTX range."""
    if not on_cuda:
        for call in calls:
            candidate(*call.args, **call.kwargs)
        return
    torch.cuda.synchronize()
    with _cuda_profiler_range():
        for index, call in enumerate(calls):
            with torch.cuda.nvtx.range(f"torchstone: call {index}"):
                candidate(*call.args, **call.kwargs)
        torch.cuda.synchronize()


if __name__ == "__main__":
    sys.exit(main())
