"""The judge's handle on one worker: sends commands, waits for replies, freezes it, ends it.

:meth:`Worker.ask` returns the worker's reply, or raises one of the exceptions of ``worker_failures.py``. The caller
turns them into verdicts. Every wait has a deadline.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from torchstone.errors import InfrastructureError
from torchstone.isolation import linux_calls
from torchstone.protocol.commands import GO, Command
from torchstone.protocol.json_framing import frame
from torchstone.protocol.replies import Ready, Reply
from torchstone.schema import Holding, Layer, Limits, ResultReading
from torchstone.supervisor.ptrace_freezing import CannotFreezeError, PtraceFreezer, children
from torchstone.supervisor.sigstop_freezing import SigstopFreezer
from torchstone.supervisor.usage_limits import WATCH_SECONDS, UsageLimits
from torchstone.supervisor.wait_for_end import wait_for_exit
from torchstone.supervisor.worker_failures import BadReplyError, OverLimitError, WorkerEndedError, WorkerTimeoutError
from torchstone.supervisor.worker_pipes import WorkerPipes

if TYPE_CHECKING:
    from torchstone.protocol.shared_memory import Arenas
    from torchstone.supervisor.result_reading import Reader

_SPIN_SECONDS = 0.05
"""How long the judge polls for a reply before it sleeps: longer than any timed block takes."""
_REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS)
"""Error codes of ptrace on a machine that does not allow tracing."""
_GRACE_SECONDS = 0.1
"""Time after the deadline in which a reply that is already in the pipe is still read."""


class Worker:
    """One worker process, from the request for it to its end."""

    def __init__(
        self,
        commands: socket.socket,
        replies: int,
        log: int,
        status: int,
        leash: int,
        limits: Limits,
        cores: tuple[int, ...] = (),
    ) -> None:
        """The descriptors are the judge's ends. ``cores``: cores that the worker is bound to; empty: to none."""
        self._commands = commands
        self._pipes = WorkerPipes(replies, log, status, limits.log_tail_bytes)
        self._leash = leash
        self._usage = UsageLimits(limits)
        self.cores = cores
        # On a busy machine a polling judge has used up its share of a core when the reply comes, and must wait for a
        # core. If workers are bound to cores, because they are timed on them, the judge sleeps instead of polling.
        self._may_spin = not cores and len(os.sched_getaffinity(0)) > 1
        self.is_urgent = True
        """Whether the exact time of a reply matters: it does for timing, but not for checks beside other judges."""
        self._unawaited: deque[tuple[str, Callable[[Reply], None]]] = deque()
        """Commands that were sent without waiting: the token of each, and the function that takes its reply."""
        self._freezer: PtraceFreezer | SigstopFreezer | None = None
        self.holding: Holding = "traced"
        """How the worker is frozen; known after the first attempt."""
        self.results: ResultReading = "read"
        """How its results reach the judge; known after the first attempt."""
        self._spin_until = 0.0
        self._closed = False
        self.is_gone = False
        """Whether it was killed, and all its processes have ended."""
        self.pid = 0
        """Pid, in the judge's namespace, of the process that runs candidate code. Known once the worker is ready."""
        self.reader: Reader | None = None
        """Reads its results; opened at the first read."""
        self.arenas: Arenas | None = None
        """The judge's memory that the worker sees; created at the first use."""
        self.layers: tuple[Layer, ...] = ()
        self.candidate_key: str | None = None
        """Key of the implementation that was loaded last; None while the worker is a spare."""
        self.package = ""
        """The package whose other implementations may also be loaded into this worker; empty: none."""
        self.loads = 0
        self.is_built = False
        """Whether its candidate's native source was compiled."""
        commands.setblocking(False)

    @property
    def log_tail(self) -> str:
        """The end of the worker's printed output."""
        return self._pipes.log_tail

    def clear_log(self) -> None:
        """Drop the output so far: the next case's record gets its own tail."""
        self._pipes.clear_log()

    @property
    def warden_pid(self) -> int | None:
        """Process 1 of the worker's namespace; None until it has reported."""
        return self._pipes.warden_pid

    def wait_ready(self, deadline: float) -> None:
        """Wait until the sandbox is closed, and the device open if it opens at the start."""
        reply = self._receive(deadline)
        if not isinstance(reply, Ready):
            raise BadReplyError(f"expected the worker to report ready, got {type(reply).__name__}")
        self._find_pid(deadline)
        self.layers = reply.layers

    def _find_pid(self, deadline: float) -> None:
        """Set :attr:`pid` to the warden's only child. No candidate code has run yet."""
        while self.warden_pid is None and not self._pipes.has_ended:
            self._wait_and_read(max(deadline, time.monotonic() + _GRACE_SECONDS))
        found = children(self.warden_pid) if self.warden_pid is not None else []
        if not found:
            raise WorkerEndedError(self._pipes.ending)
        self.pid = found[0]

    def ask(self, command: Command, deadline: float, descriptor: int | None = None) -> Reply:
        """Send a command, resume the worker if it is frozen, and wait for its reply until the deadline."""
        self.post(command, deadline, descriptor)
        self.thaw()
        return self.answer_to(command, deadline)

    def post(self, command: Command, deadline: float, descriptor: int | None = None) -> None:
        """Send a command. A frozen worker receives it when it is resumed.

        Usage limits are checked before the command is sent, because timing may begin after it.
        """
        self.check_silence()
        if self._usage.are_due(time.monotonic()):
            self._check_usage()
        self._send(frame(command), descriptor, deadline)

    def send_without_waiting(
        self, command: Command, deadline: float, take: Callable[[Reply], None], descriptor: int | None = None
    ) -> None:
        """Send a command to a frozen worker and leave it frozen: resuming it would take longer than the command.

        The worker carries it out before the next command that the judge waits for. ``take`` gets the reply then, and
        may raise.
        """
        self._send(frame(command), descriptor, deadline)
        self._unawaited.append((command.token, take))

    def await_sent(self, deadline: float) -> None:
        """Resume the worker until it has carried out the commands of :meth:`send_without_waiting`, then freeze it."""
        self.thaw()
        self._take_earlier_replies(deadline)
        self.freeze()

    def answer_to(self, command: Command, deadline: float) -> Reply:
        """Wait for the reply to a command that was posted."""
        self._spin_until = time.monotonic() + _SPIN_SECONDS
        self._take_earlier_replies(deadline)
        return self._reply_to(command.token, deadline)

    def _take_earlier_replies(self, deadline: float) -> None:
        """Wait for the replies to the commands of :meth:`send_without_waiting`, and pass each to its function."""
        while self._unawaited:
            token, take = self._unawaited.popleft()
            take(self._reply_to(token, deadline))

    def _reply_to(self, token: str, deadline: float) -> Reply:
        reply = self._receive(deadline)
        if isinstance(reply, Ready) or reply.token != token:
            raise BadReplyError("the worker replied to a command that was not sent")
        return reply

    def go(self) -> None:
        """Send the byte on which a worker that replied ``Armed`` begins its calls."""
        try:
            self._commands.send(GO)
        except OSError:
            self._pipes.await_end()
            raise WorkerEndedError(self._pipes.ending) from None

    def check_silence(self) -> None:
        """Raise BadReplyError if the reply pipe has bytes. Between commands only a candidate writes there."""
        self._pipes.read_available()
        if self._pipes.unread_bytes:
            raise BadReplyError(f"{self._pipes.unread_bytes} bytes on the reply pipe that reply to no command")

    def _send(self, data: bytes, descriptor: int | None, deadline: float) -> None:
        view = memoryview(data)
        first = True
        while view:
            try:
                if first and descriptor is not None:
                    sent = socket.send_fds(self._commands, [view], [descriptor])
                else:
                    sent = self._commands.send(view)
                first, view = False, view[sent:]
            except BlockingIOError:
                self._wait_and_read(deadline)
            except (BrokenPipeError, ConnectionResetError):
                self._pipes.await_end()
                raise WorkerEndedError(self._pipes.ending) from None

    def _receive(self, deadline: float) -> Reply:
        """The next reply. Raises WorkerEndedError if the worker ended, WorkerTimeoutError past the deadline."""
        while True:
            reply = self._pipes.take_reply()
            if reply is not None:
                return reply
            if self._pipes.has_ended:
                raise WorkerEndedError(self._pipes.ending)
            self._wait_and_read(deadline)

    def _wait_and_read(self, deadline: float) -> None:
        """Wait for input and read it; check usage limits meanwhile. Raises WorkerTimeoutError past the deadline."""
        now = time.monotonic()
        quiet = not self._wait_for_input(max(0.0, min(deadline - now, WATCH_SECONDS)))
        if now >= deadline and (quiet or now >= deadline + _GRACE_SECONDS):
            # If too many processes took the time, and the judge had no core to check, report that first:
            self._usage.count(self.warden_pid)
            raise WorkerTimeoutError
        self._pipes.read_available()
        # Checks depend on time, not on silence, so a worker that keeps printing is checked too. But not once its reply
        # is here, as it may be timed: a candidate must gain nothing by output that makes the judge check earlier.
        if self._usage.are_due(now) and not self._pipes.has_answer():
            self._check_usage()

    def _check_usage(self) -> None:
        if self._freezer is not None:
            self._freezer.reap_dead()
        self._usage.check(self.warden_pid)

    def _wait_for_input(self, seconds: float) -> bool:
        """Wait for input from the pipes; return whether there is any before the time is over.

        Polls for a moment before it sleeps: waking up takes as long as a small kernel, and a varying time. It does not
        poll if the judge has no core of its own for that, or others need the core.
        """
        if self._may_spin and self.is_urgent:
            end = time.monotonic() + seconds
            until = min(self._spin_until, end)
            while time.monotonic() < until:
                if self._pipes.has_input(0):
                    return True
            seconds = max(0.0, end - time.monotonic())
        return self._pipes.has_input(seconds * 1000)

    def check_freezable(self) -> None:
        """Freeze and resume the worker, to find out whether that is possible. Called before a candidate is loaded.

        So a refusal now comes from the machine, and a later one is caused by the candidate.
        """
        self._choose_freezing_method()
        try:
            self.freeze()
        except OverLimitError:
            if self._freezer is not None and self._freezer.refusal is not None:
                raise InfrastructureError(
                    f"the system does not let the judge freeze its own worker ({self._freezer.refusal.strerror}). "
                    "Allow ptrace (in a container: --cap-add SYS_PTRACE)."
                ) from None
            raise
        self.thaw()

    def _choose_freezing_method(self) -> None:
        """Choose ptrace if the machine allows it, otherwise signals, which are weaker."""
        if self._freezer is not None or self.warden_pid is None:
            return
        try:
            linux_calls.trace(self.pid)
        except OSError as refusal:
            if refusal.errno in _REFUSALS:
                self.holding, self._freezer = "stopped", SigstopFreezer(self.warden_pid)

    @property
    def is_frozen(self) -> bool:
        """Whether the worker is frozen."""
        return self._freezer is not None and self._freezer.is_frozen

    def freeze(self) -> None:
        """Stop every thread of every process of the worker, and wait until all are stopped.

        A frozen worker can neither finish a call after it reported the call done, nor begin the next one before timing
        starts. Work on its device continues. ``ptrace_freezing.py`` shows why no thread is left running.
        """
        self._pipes.read_status()
        if self.warden_pid is None or not self.pid or self._pipes.has_ended:
            return
        if self._freezer is None:
            self._freezer = PtraceFreezer(self.warden_pid, self._end_by_leash)
        try:
            self._freezer.freeze()
        except CannotFreezeError as error:
            raise OverLimitError("processes", str(error)) from None

    @property
    def frozen_threads(self) -> int:
        """Number of frozen threads of the worker."""
        return 0 if self._freezer is None else self._freezer.threads

    def _end_by_leash(self) -> None:
        """Make the warden end, and with it every process of the worker, as if the leash were closed."""
        with contextlib.suppress(OSError):
            os.write(self._leash, b"x")

    def thaw(self) -> None:
        """Resume the worker. Is timed as part of a call, so it is fast."""
        if self._freezer is None:
            return
        killed = self._freezer.thaw()
        if killed and self.pid not in killed:
            # A frozen process takes no processor time, but its death does, while another worker is timed.
            raise OverLimitError("processes", "a process of the worker died while the worker was frozen")

    def check_alive(self) -> None:
        """Raise WorkerEndedError if its process was killed: then unreadable memory is no proof of a wrong address."""
        if self._freezer is not None and self._freezer.was_killed(self.pid):
            raise WorkerEndedError(None)

    def kill(self) -> None:
        """End the worker and all processes that it started, and wait for their end for a limited time.

        :attr:`is_gone` is True afterwards if all of them have ended.
        """
        if self._closed:
            return
        self._pipes.read_status()
        if self._freezer is not None:
            self._freezer.thaw()  # a frozen process dies slowly if a device driver has to clean up after it
            self._freezer.close()
        os.close(self._leash)
        self.is_gone = self.warden_pid is None or wait_for_exit(self.warden_pid, self._freezer)
        if self.reader is not None:
            self.reader.close()
        if self.arenas is not None:
            self.arenas.close()
        self._closed = True
        self._pipes.close()
        self._commands.close()
