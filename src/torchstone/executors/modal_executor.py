"""Executor `modal`: judges a few jobs of one candidate per call, in a container on Modal with the requested GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import Any, Protocol

import msgspec

from torchstone.errors import (
    DeviceUnavailableError,
    InfrastructureError,
    MissingExtraError,
    TorchstoneError,
    UsageError,
)
from torchstone.executors.base import ExecutorOptions, Session, run_in
from torchstone.executors.judge_site import Site
from torchstone.executors.modal_app import APP, GPUS, function_name, known_gpu, versions
from torchstone.executors.node_judge import packed_options
from torchstone.executors.remote_session import RemoteJudge, RemoteSession
from torchstone.schema import Job, Node, Record, decode, encode

_MOST_JOBS = 16
"""Most jobs of one candidate in one call. Several, because a container takes ten seconds and more to start."""


class RemoteCall(Protocol):
    """A running call of a deployed function."""

    def get(self) -> Any:
        """Wait for the call's result and return it."""
        ...

    def cancel(self, terminate_containers: bool = False) -> None: ...


class RemoteFunction(Protocol):
    """A deployed function."""

    def spawn(self, *texts: str) -> RemoteCall: ...


class ModalClient(Protocol):
    """The part of Modal that the executor uses. Tests pass a fake."""

    def function(self, name: str) -> RemoteFunction:
        """The deployed function of that name."""
        ...


class DeployedFunctions:
    """Looks up functions of the deployed app with the package `modal`."""

    def __init__(self) -> None:
        self._modal = import_modal()

    def function(self, name: str) -> RemoteFunction:
        found: RemoteFunction = self._modal.Function.from_name(APP, name)
        return found


def import_modal() -> Any:
    """Import the package `modal`. Raises MissingExtraError if it is not installed."""
    try:
        import modal
    except ImportError as error:
        raise MissingExtraError("Modal needs its package. Install it: pip install 'torchstone[modal]'.") from error
    return modal


class ModalExecutor:
    """Judges in containers on Modal, one GPU type for a run (extra `modal`)."""

    def __init__(self, options: ExecutorOptions, client: ModalClient | None = None) -> None:
        # A Modal container may refuse CUDA IPC and ptrace. With a fixed choice all records are alike.
        self._options = msgspec.structs.replace(options, results="copied", slots=1, slot=None)
        self._client = client

    @staticmethod
    def survey(options: ExecutorOptions, client: ModalClient | None = None) -> Site:
        """Request a description from a container with the chosen GPU type."""
        if options.device not in ("auto", "cuda"):
            raise UsageError(f"device '{options.device}' is not for Modal. Use --device cuda and --gpu TYPE.")
        if not options.gpu:
            raise UsageError(f"--executor modal needs a GPU type. Name one with --gpu: {', '.join(GPUS)}.")
        gpu = known_gpu(options.gpu)
        function = (client or DeployedFunctions()).function(function_name(gpu))
        node = decode(called(function, gpu, "describe"), Node)
        named = msgspec.structs.replace(node, name=f"Modal {gpu}")
        return Site("cuda", (named,), lambda module, text: called(function, gpu, "ask", module, text))

    def run(self, jobs: Iterable[Job]) -> Iterator[Record]:
        """Judge every job. Closing the iterator cancels every call."""
        listed = tuple(jobs)
        if listed:
            yield from run_in(self.open(), listed)

    def open(self) -> Session:
        """Open a session, which makes calls when there is work. Containers start and end with the calls."""
        return RemoteSession(ModalFleet(self._options, self._client or DeployedFunctions()), self._options)


def called(function: RemoteFunction, gpu: str, *texts: str) -> str:
    """Call a function and wait for its text. Raises `TorchstoneError` for any failure."""
    try:
        return text_of(function.spawn(*texts).get())
    except TorchstoneError:
        raise
    except Exception as error:
        raise as_ours(error, gpu) from error


def text_of(answer: object) -> str:
    """The answer if it is text; raises InfrastructureError for anything else from a container that ran a candidate."""
    if not isinstance(answer, str):
        raise InfrastructureError(f"the container answered with {type(answer).__name__}, not with text.")
    return answer


def as_ours(error: BaseException, gpu: str) -> TorchstoneError:
    """Convert an error of Modal. `UsageError` and `DeviceUnavailableError`: another attempt would not help.

    `InfrastructureError`: another container may not have the error.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__ if kind.__module__.startswith("modal")}
    words = " ".join(str(error).split())[:300]
    if kinds & {"AuthError", "PermissionDeniedError"}:
        return DeviceUnavailableError(f"Modal does not accept this machine ({words}). Log in: modal token new.")
    if "NotFoundError" in kinds:
        return UsageError(f"Modal has no function {function_name(gpu)} in app {APP}. Run 'torchstone deploy modal'.")
    if kinds & {"InvalidError", "VersionError"}:
        return UsageError(f"Modal refuses the call ({words}). Update the package modal, then deploy again.")
    return InfrastructureError(f"Modal: {type(error).__name__}: {words or 'no reason given'}.")


class ModalJudge:
    """Judges by calls of the function for one GPU type, at most one call for each allowed container at a time."""

    def __init__(self, function: RemoteFunction, options: ExecutorOptions, gpu: str) -> None:
        self.name = f"Modal {gpu}"
        self.width = options.judges_per_device
        self._function, self._gpu = function, gpu
        own = msgspec.structs.replace(options, node=self.name, judges_per_device=1)
        self._texts = encode(versions()).decode(), packed_options(own)
        self._threads = ThreadPoolExecutor(self.width, thread_name_prefix="torchstone-modal")
        self._lock = Lock()
        self._under_way: set[RemoteCall] = set()
        self._closed = False

    def judge(self, jobs: str) -> Future[str]:
        return self._threads.submit(self._call, jobs)

    def _call(self, jobs: str) -> str:
        try:
            call = self._function.spawn("judge", *self._texts, jobs)
            with self._lock:
                self._under_way.add(call)
                closed = self._closed
            try:
                if closed:
                    call.cancel(terminate_containers=True)
                return text_of(call.get())
            finally:
                with self._lock:
                    self._under_way.discard(call)
        except TorchstoneError:
            raise
        except Exception as error:
            raise as_ours(error, self._gpu) from error

    def end(self) -> None:
        """Cancel every call. Their containers end."""
        with self._lock:
            self._closed, calls = True, tuple(self._under_way)
        for call in calls:
            with suppress(Exception):
                call.cancel(terminate_containers=True)
        self._threads.shutdown(wait=False, cancel_futures=True)


class ModalFleet:
    """A fleet with one judge, the function for one GPU type. See `Fleet`."""

    most_jobs = _MOST_JOBS

    def __init__(self, options: ExecutorOptions, client: ModalClient) -> None:
        gpu = known_gpu(options.gpu)
        self._judge = ModalJudge(client.function(function_name(gpu)), options, gpu)

    def judges(self, wanted: int) -> Sequence[RemoteJudge]:
        return (self._judge,)

    def lost(self, judge: RemoteJudge, why: str) -> None:
        """Nothing to do: the next call gets another container."""

    def obstacle(self) -> str:
        return "Modal starts no container"

    def close(self) -> None:
        self._judge.end()
