"""Profiles a kernel with torch's profiler in a sandboxed worker: a Chrome trace of a few calls, on the CPU or on CUDA.

This is the trusted side. It draws the inputs, lets the worker call, and reads the trace from its own memory after the
worker has ended. Nothing of the kernel is imported here.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchstone.atomic_files import write_atomically
from torchstone.errors import DeviceUnavailableError, InfrastructureError, UsageError
from torchstone.profiling.base import LOG_CHARACTERS, Subject, unavailable, with_kernels
from torchstone.profiling.chrome_trace import NotATraceError, kernels_of
from torchstone.protocol.commands import Load, Trace
from torchstone.protocol.replies import Ending, Failed, Reply, Traced
from torchstone.runs.folder import writing_to
from torchstone.schema import ProfiledKernel, ProfilerResult, ProfilerStatus, explain
from torchstone.supervisor.worker_failures import BadReplyError, OverLimitError, WorkerEndedError, WorkerTimeoutError
from torchstone.supervisor.worker_handle import Worker
from torchstone.supervisor.worker_pool import WorkerOptions, WorkerPool

if TYPE_CHECKING:
    import torch

    from torchstone.judge_process.bound_worker import BoundWorker

NAME = "torch"
FILE = "torch_trace.json"
ROOM_BYTES = 64 << 20
"""Largest trace. Only written pages of this shared memory are allocated."""

_ARENA_BYTES = {"cpu": 512 << 20, "cuda": 2 << 30}
"""Most bytes of the inputs of all calls together. If they would exceed it, inputs are used more than once."""


class KernelFailedError(Exception):
    """The kernel failed, so that there is no trace; the text is the reason."""


class TorchProfiler:
    """Profiles the kernel by torch.profiler, in a worker with the requested isolation."""

    in_sandbox = True

    def profile(self, subject: Subject) -> ProfilerResult:
        options = WorkerOptions(subject.device.kind, subject.isolation, subject.limits, subject.threads, spares=0)
        with _only_device_visible(subject), contextlib.closing(WorkerPool(options)) as pool:
            pool.start()  # its import of torch runs beside ours
            try:
                return _profile(subject, pool)
            except InfrastructureError as error:
                return unavailable(NAME, str(error), _torch_version())


@contextlib.contextmanager
def _only_device_visible(subject: Subject) -> Iterator[None]:
    """Limit this process and its workers to the one device inside the block."""
    variables = subject.device.environment()
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _profile(subject: Subject, pool: WorkerPool) -> ProfilerResult:
    from torchstone.judging import ReferenceFailure

    worker = pool.take()
    try:
        trace = _trace_in_worker(subject, worker)
    except (ReferenceFailure, UsageError) as error:
        return unavailable(NAME, f"torch itself fails on this case: {error}", _torch_version())
    except KernelFailedError as error:
        return _result(worker, "failed", str(error))
    finally:
        worker.kill()
    try:
        kernels = kernels_of(trace)
    except NotATraceError as error:
        return _result(worker, "failed", f"the kernel's process returned no trace that can be read: {error}.")
    with writing_to(subject.folder, "profile folder"):
        write_atomically(subject.folder / FILE, trace)
    return with_kernels(_result(worker, "profiled", _notice_without_kernels(subject, kernels), (FILE,)), kernels)


def _result(worker: Worker, status: ProfilerStatus, notice: str, files: tuple[str, ...] = ()) -> ProfilerResult:
    return ProfilerResult(
        NAME,
        status,
        notice,
        _torch_version(),
        files,
        sandboxed=any(layer.active for layer in worker.layers),
        layers=worker.layers,
        log_tail=worker.log_tail[-LOG_CHARACTERS:],
    )


def _torch_version() -> str:
    import torch

    return str(torch.__version__)


def _notice_without_kernels(subject: Subject, kernels: list[ProfiledKernel]) -> str:
    if subject.device.kind == "cuda" and all(kernel.kind == "operator" for kernel in kernels):
        return "no device kernel was seen: another profiler may be attached, or the calls launched none."
    return ""


def _trace_in_worker(subject: Subject, worker: Worker) -> bytes:
    """Run the worker and return the trace. Shared memory is read after the worker has ended."""
    from torchstone.protocol.shared_memory import HostArena

    room = HostArena(ROOM_BYTES)
    try:
        size = _request_trace(subject, worker, room.descriptor)
        worker.kill()
        if size > ROOM_BYTES:
            raise KernelFailedError(
                f"the trace has {size >> 20} MiB, more than {ROOM_BYTES >> 20} MiB. Profile fewer calls (--calls)."
            )
        return os.pread(room.descriptor, size, 0)
    finally:
        room.close()


def _request_trace(subject: Subject, worker: Worker, descriptor: int) -> int:
    """Let the worker make the calls under the profiler. Returns the size of the trace that it reports."""
    try:
        bound, sets = _prepare(subject, worker)
    except RuntimeError as error:  # an error of torch: no kernel is loaded yet
        raise InfrastructureError(f"the inputs of this case cannot be made here: {error}") from error
    command = Trace(secrets.token_hex(8), sets, subject.warmup_calls, subject.calls, ROOM_BYTES)
    deadline = time.monotonic() + subject.seconds
    try:
        with _attributing_failures(subject):
            _require_done(worker.ask(Load(secrets.token_hex(8), subject.kernel.implementation), deadline))
            bound.bind(deadline)
            reply = worker.ask(command, deadline, descriptor)
            _require_done(reply)
            if not isinstance(reply, Traced):
                raise BadReplyError(f"expected a trace, got {type(reply).__name__}")
            return reply.trace_bytes
    finally:
        worker.kill()  # it must end before the buffers are freed
        bound.close()


def _prepare(subject: Subject, worker: Worker) -> tuple[BoundWorker, int]:
    """Draw inputs into buffers that the worker shares. Returns the binding and the number of input sets."""
    from torchstone.judge_process.bound_worker import BoundWorker
    from torchstone.judge_process.call_layout import CallLayout
    from torchstone.judging import Reference, draw_calls

    device = _open_device(subject)
    first = draw_calls(subject.kernel.case, secrets.randbits(63), 1, device)
    (expected,) = Reference(subject.kernel.case, device).expect_many(first)
    layout = CallLayout(subject.kernel.case, expected)
    fitting = _ARENA_BYTES[device.type] // max(1, layout.footprint_bytes)
    sets = max(1, min(subject.warmup_calls + subject.calls, fitting))
    bound = BoundWorker(worker, subject.kernel.case, layout, sets, device)
    bound.present(draw_calls(subject.kernel.case, secrets.randbits(63), sets, device))
    return bound, sets


def _open_device(subject: Subject) -> torch.device:
    import torch

    if subject.device.kind == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise DeviceUnavailableError(f"torch {torch.__version__} cannot use {subject.device.label}.")
    return torch.device("cuda", 0)


def _require_done(reply: Reply) -> None:
    if isinstance(reply, Failed):
        raise KernelFailedError(f"the kernel failed: {reply.message}")


@contextlib.contextmanager
def _attributing_failures(subject: Subject) -> Iterator[None]:
    """Turn every failure of the worker into a `KernelFailedError` with its reason."""
    from torchstone.judge_process.candidate_failures import CandidateFailedError

    try:
        yield
    except CandidateFailedError as error:
        raise KernelFailedError(f"the kernel failed: {error}") from error
    except WorkerTimeoutError as error:
        raise KernelFailedError(f"no answer within {subject.seconds:g} s. Allow more with --timeout.") from error
    except (BadReplyError, RecursionError, UnicodeDecodeError) as error:
        raise KernelFailedError(f"the kernel wrote to the worker's reply pipe: {error}") from error
    except OverLimitError as error:
        raise KernelFailedError(f"the kernel was stopped: {error}") from error
    except WorkerEndedError as error:
        raise KernelFailedError(f"the kernel's process ended: {_ending_text(error.ending)}") from error


def _ending_text(ending: Ending | None) -> str:
    from torchstone.judge_process.verdict_wording import verdict_for_ending

    if ending is None:
        return "killed from outside"
    return explain(verdict_for_ending("attribute", ending.exit_code, ending.signal_number)).removeprefix("attribute: ")
