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
from torchstone.profiling.subject_messages import SAID, BenchmarkFile, KernelOnCase, ProfileOrder, Said
from torchstone.schema import decode, encode, tensors_of
from torchstone.worker.loading import load

_INPUT_BYTES = 2 << 30
"""For the inputs of all calls together; where they do not fit, they are used more than once."""


def main() -> int:
    """Carry out the order and say how it went."""
    path = Path(sys.argv[1])
    order = decode(path.read_bytes(), ProfileOrder)
    said = path.with_name(SAID)
    _bound(order)
    said.write_bytes(encode(Said(False, "its process ended before the calls were made")))  # stands if it crashes
    try:
        _run(order, path.parent)
    except BaseException as error:  # noqa: BLE001 - a kernel may raise anything, SystemExit included
        traceback.print_exception(error)
        said.write_bytes(encode(Said(False, f"{type(error).__name__}: {error}"[:2000])))
        return 1
    said.write_bytes(encode(Said(True)))
    return 0


def _bound(order: ProfileOrder) -> None:
    # Not by the death of the parent: that is one of the tool's threads, which may come and go.
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
    """As the harness runs it, but for the clock."""
    on_cuda = order.device_type == "cuda"
    marks = on_cuda and what.marks_ranges
    if what.deterministic:
        be_deterministic()
    seed_everything(what.seed)
    benchmark = load_benchmark(what.path, what.root)
    seed_everything(what.seed)
    with marked("setup", marks):
        benchmark.setup()
    watching = _watched() if on_cuda else contextlib.nullcontext()
    make_calls(benchmark, order.warmup_calls, order.calls, watching, on_cuda, marks)
    benchmark.teardown()


@contextlib.contextmanager
def _watched() -> Iterator[None]:
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
    _profiled(candidate, drawn[order.warmup_calls :], on_cuda=device.type == "cuda")


def _fitting_sets(what: KernelOnCase) -> int:
    needed = sum(
        operators.storage_extent(recipe) * operators.torch_dtype(recipe.dtype).itemsize
        for recipe in tensors_of(what.case)
    )
    return max(1, _INPUT_BYTES // max(1, needed))


def _profiled(candidate: Callable[..., Any], calls: list[DrawnCall], on_cuda: bool) -> None:
    """The calls that count, each in a range of its own."""
    if not on_cuda:
        for call in calls:
            candidate(*call.args, **call.kwargs)
        return
    torch.cuda.synchronize()
    with _watched():
        for index, call in enumerate(calls):
            with torch.cuda.nvtx.range(f"torchstone: call {index}"):
                candidate(*call.args, **call.kwargs)
        torch.cuda.synchronize()


if __name__ == "__main__":
    sys.exit(main())
