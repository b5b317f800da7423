"""``python -m torchstone.sweeps.profiled_process ORDER_FILE``: runs a sweep's calls under a profiler, in NVTX ranges.

Every call is first made once unprofiled, so that compiling and loading are not in the profile. In the second pass ncu
profiles only the calls; torch's profiler and nsys also profile the making of inputs.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from torchstone.benchmarks.profiled_calls import marked
from torchstone.schema import decode
from torchstone.sweeps.point_session import PointSession
from torchstone.sweeps.process_messages import Failed
from torchstone.sweeps.profile_request import TABLE, TRACE, ProfiledCall, SweepProfileRequest

_TABLE_ROWS = 100


def main() -> int:
    order = decode(Path(sys.argv[1]).read_bytes(), SweepProfileRequest)
    signal.alarm(order.seconds)
    session = PointSession()
    opened = session.handle(order.opening)
    if isinstance(opened, Failed):
        print(f"error: {opened.message}", file=sys.stderr)
        return 1
    is_cuda = order.opening.device_type == "cuda"
    for call in order.calls:
        _make(session, call, contextlib.nullcontext(), is_cuda)
    if order.profiler == "torch":
        _under_torch(session, order, is_cuda)
    elif order.profiler == "ncu":
        for call in order.calls:
            _make(session, call, _cuda_profiler_range(), is_cuda)
    else:
        with _cuda_profiler_range():
            for call in order.calls:
                _make(session, call, contextlib.nullcontext(), is_cuda)
    return 0


def _make(session: PointSession, called: ProfiledCall, watching: AbstractContextManager[Any], is_cuda: bool) -> None:
    call = session.call(called.point, called.implementation)
    with watching, marked(title_of(called), is_cuda), torch.set_grad_enabled(called.point.mode != "fwd"):
        call()
        if is_cuda:
            torch.cuda.synchronize()


def title_of(called: ProfiledCall) -> str:
    """``LayerNorm Triton 16x256x128 float32 fwd``."""
    at = called.point
    sizes = f"{at.batch_size}x{at.sequence_length}x{at.tensor_dimension}"
    return f"{at.operation} {called.implementation} {sizes} {at.dtype} {at.mode}"


@contextlib.contextmanager
def _cuda_profiler_range() -> Iterator[None]:
    torch.cuda.synchronize()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    yield
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def _under_torch(session: PointSession, order: SweepProfileRequest, is_cuda: bool) -> None:
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if is_cuda else []
    with torch.profiler.profile(activities=activities, record_shapes=True, profile_memory=True) as profile:
        for call in order.calls:
            _make(session, call, contextlib.nullcontext(), is_cuda)
    folder = Path(order.folder)
    sort = "self_device_time_total" if is_cuda else "self_cpu_time_total"
    table = profile.key_averages().table(sort_by=sort, row_limit=_TABLE_ROWS)
    (folder / TABLE).write_text(table)
    profile.export_chrome_trace(str(folder / TRACE))


if __name__ == "__main__":
    sys.exit(main())
