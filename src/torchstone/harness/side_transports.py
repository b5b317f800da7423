"""Sends requests to one benchmark, which runs in its own process, or in a thread if it cannot be moved to one."""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from torchstone.harness.benchmark_process_messages import Reply, Request
from torchstone.harness.fork_server import ForkServer
from torchstone.harness.host_memory_limit import MemoryLimit
from torchstone.processes import BoundedLog, ReplyTimeoutError

if TYPE_CHECKING:
    from torchstone.harness.side_session import SideSession


class Transport(Protocol):
    """Sends requests to one side. `ask` raises `ChildEndedError`, `ReplyTimeoutError` or `OverMemoryError`."""

    execution: Literal["process", "thread"]

    def ask(self, request: Request, deadline: float) -> Reply: ...

    def limit_memory(self, limit_bytes: int | None) -> None: ...

    def end(self) -> None: ...

    @property
    def log_tail(self) -> str: ...

    @property
    def log_file(self) -> str:
        """Path of the file with everything that the side printed. Empty: nothing was printed or kept."""
        ...


class ProcessTransport:
    """Transport to a process of the side's own. Processes that it started end with it."""

    execution: Literal["process", "thread"] = "process"

    def __init__(self, fork_server: ForkServer, log_path: Path | None, deterministic: bool = False) -> None:
        self._log_path = log_path
        self._memory = MemoryLimit()
        self._log = BoundedLog(log_path)
        self._child = fork_server.start_side(self._log, lambda keeper: self._memory(keeper), deterministic)

    def ask(self, request: Request, deadline: float) -> Reply:
        return self._child.ask(request, Reply, deadline)  # type: ignore[arg-type]  # a union

    def limit_memory(self, limit_bytes: int | None) -> None:
        self._memory = MemoryLimit(limit_bytes)

    def end(self) -> None:
        self._child.end()

    @property
    def log_tail(self) -> str:
        return self._log.tail

    @property
    def log_file(self) -> str:
        return str(self._log_path) if self._log_path is not None and self._log.total_bytes else ""


class ThreadTransport:
    """Transport to a thread of this process. After a deadline it is no longer waited for, but it cannot be killed."""

    execution: Literal["process", "thread"] = "thread"

    def __init__(self, benchmark: Any) -> None:
        self._benchmark = benchmark
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self._session: SideSession | None = None
        threading.Thread(target=self._serve, name="torchstone-benchmark", daemon=True).start()

    def _serve(self) -> None:
        from torchstone.harness.side_session import SideSession  # late: it imports torch

        self._session = session = SideSession(owns_process=False, benchmark=self._benchmark)
        while (request := self._requests.get()) is not None:
            self._replies.put(session.handle(request))
        session.put_back_settings()  # again: a request that overran may have changed them after `end`

    def ask(self, request: Request, deadline: float) -> Reply:
        self._requests.put(request)
        try:
            return self._replies.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise ReplyTimeoutError from None

    def limit_memory(self, limit_bytes: int | None) -> None:
        """Do nothing: the memory of the caller's process is not limited."""

    def end(self) -> None:
        self._requests.put(None)
        if self._session is not None:
            self._session.put_back_settings()

    @property
    def log_tail(self) -> str:
        return ""

    @property
    def log_file(self) -> str:
        return ""
