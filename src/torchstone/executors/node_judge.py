"""Judges jobs on a node of a cluster or in a container: a local session that takes and returns JSON text.

This code is trusted; candidates run in its workers. Jobs and records travel as text. Ray still pickles its own
returns and exceptions, so the nodes of a cluster are trusted, too.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import Future

import msgspec

from torchstone.errors import InfrastructureError, TorchstoneError
from torchstone.executors.base import ExecutorOptions, Ticket, ticket_of
from torchstone.executors.local import LocalExecutor
from torchstone.executors.machine import hardware
from torchstone.executors.versions import software
from torchstone.isolation.layer_probe import layers_here
from torchstone.schema import Job, Node, Record, decode, encode

_MOST_IDLE_SECONDS = 86400.0
"""Largest value of ``idle_seconds`` that is sent to a node, one day: JSON has no infinity."""
_ASK_SECONDS = 3600.0
"""Longest preparation of a suite's cases on a node. All of OpInfo takes some minutes."""


class Judged(msgspec.Struct, frozen=True, tag="judged"):
    """Answer with a record for each job of a message."""

    records: tuple[Record, ...]


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """Answer of a node that cannot judge."""

    error: str
    """Name of the error class, see ``errors.py``."""
    message: str


NodeAnswer = Judged | Refused


def packed(jobs: Iterable[Job]) -> str:
    """Encode jobs as the text that `NodeJudge.judge` takes. It has all that a node needs: recipes and sources."""
    return encode(tuple(jobs)).decode()


def packed_options(options: ExecutorOptions) -> str:
    """Encode options as the text from which a `NodeJudge` is constructed."""
    bounded = min(options.idle_seconds, _MOST_IDLE_SECONDS)
    return encode(msgspec.structs.replace(options, idle_seconds=bounded)).decode()


def unpacked(text: str) -> NodeAnswer:
    """Decode the answer to a message. Raises ``msgspec.MsgspecError`` if the text is no answer."""
    return decode(text, NodeAnswer)  # type: ignore[arg-type]


def described(device_type: str | None = None) -> str:
    """This machine as JSON of a `Node`. With a device type it lists the sandbox layers, which takes half a second."""
    layers = () if device_type is None else layers_here(device_type)
    return encode(Node(platform.node(), hardware(), software(), layers)).decode()


class NodeJudge:
    """Judges on this machine. :meth:`judge` may be called from several threads at once."""

    def __init__(self, options: str) -> None:
        """``options``: see :func:`packed_options`."""
        self._session = LocalExecutor(decode(options, ExecutorOptions)).open()
        self._lock = threading.Lock()
        self._waiting: dict[Ticket, Future[Record]] = {}
        self._failure: TorchstoneError | None = None
        self._thread = threading.Thread(target=self._serve, name="torchstone-node", daemon=True)
        self._thread.start()

    def describe(self) -> str:
        """This machine as JSON of a `Node`."""
        return described()

    def judge(self, jobs: str) -> str:
        """Judge these jobs, wait for all of them, and return JSON of a `NodeAnswer`."""
        try:
            return encode(Judged(self._records(decode(jobs, tuple[Job, ...])))).decode()
        except TorchstoneError as error:
            return encode(Refused(type(error).__name__, str(error))).decode()

    def _records(self, jobs: tuple[Job, ...]) -> tuple[Record, ...]:
        with self._lock:
            if self._failure is not None:
                raise self._failure
            new = [job for job in jobs if ticket_of(job) not in self._waiting]
            for job in new:
                self._waiting[ticket_of(job)] = Future()
            futures = [self._waiting[ticket_of(job)] for job in jobs]
            self._session.submit(new)
        return tuple(future.result() for future in futures)

    def _serve(self) -> None:
        """Pass the session's records to the waiting callers. When it ends, all callers get an error."""
        failure: TorchstoneError
        try:
            for job, record in self._session:
                with self._lock:
                    future = self._waiting.pop(ticket_of(job))
                future.set_result(record)
            failure = InfrastructureError("the judges of this node were closed.")
        except TorchstoneError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - callers must not wait forever because of a bug here
            failure = InfrastructureError(f"the judges of this node cannot go on ({type(error).__name__}: {error}).")
        with self._lock:
            self._failure, waiting = failure, list(self._waiting.values())
            self._waiting.clear()
        for future in waiting:
            future.set_exception(failure)

    def close(self) -> None:
        """End every process."""
        self._session.close()
        self._thread.join()


def ask_here(module: str, text: str) -> str:
    """Run ``python -m MODULE`` with a text as its input, and return what it prints.

    The module has a process of its own, so that its device memory is free again afterwards.
    """
    command = [sys.executable, "-P", "-m", module]
    try:
        answer = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_ASK_SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        raise InfrastructureError(f"{module} gave no answer within {_ASK_SECONDS:g} s on {platform.node()}.") from late
    if answer.returncode:
        last = answer.stderr.strip().splitlines()[-1:] or ["it printed nothing"]
        raise InfrastructureError(f"{module} failed on {platform.node()}: {last[0]}")
    return answer.stdout
