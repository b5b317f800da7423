"""The judge's handle on one worker: sends commands, waits for replies, freezes it, ends it.

Whatever happens to the worker comes out of :meth:`Worker.ask` as a reply or as one of the exceptions of
``worker_failures.py``; the caller turns them into verdicts. Nothing here waits without a deadline.
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
from torchstone.supervisor.ptrace_freezing import Hold, NotStillError, children
from torchstone.supervisor.sigstop_freezing import StopHold
from torchstone.supervisor.usage_limits import WATCH_SECONDS, UsageLimits
from torchstone.supervisor.wait_for_end import wait_for_exit
from torchstone.supervisor.worker_failures import BadReplyError, OverLimitError, OverranError, WorkerEndedError
from torchstone.supervisor.worker_pipes import WorkerPipes

if TYPE_CHECKING:
    from torchstone.protocol.shared_memory import Arenas
    from torchstone.supervisor.result_reading import Reader

_SPIN_SECONDS = 0.05
"""How long an answer is looked for again and again before the judge sleeps: longer than any timed block takes."""
_REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS)
"""Of ptrace, by a machine that does not let anyone trace."""
_GRACE_SECONDS = 0.1
"""A reply that lies in the pipe when the deadline passes is still read; one that never ends is not."""


class Worker:
    """One worker process, from request to end."""

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
        """The descriptors of the judge's ends; ``cores`` are those that the worker is bound to, if it is to any."""
        self._commands = commands
        self._pipes = WorkerPipes(replies, log, status, limits.log_tail_bytes)
        self._leash = leash
        self._usage = UsageLimits(limits)
        self.cores = cores
        # A judge that spins on a busy machine has used up its share of a core when the answer comes, and waits for
        # another. Where workers are bound to cores, because they are timed on them, the judge sleeps.
        self._may_spin = not cores and len(os.sched_getaffinity(0)) > 1
        self.is_urgent = True
        """Whether it matters when exactly an answer comes: it does to a clock, not to a check beside other judges."""
        self._ahead: deque[tuple[str, Callable[[Reply], None]]] = deque()
        """Commands that were sent and not waited for: their tokens, and who takes the replies."""
        self._hold: Hold | StopHold | None = None
        self.holding: Holding = "traced"
        """How it is held still; known once that has been tried."""
        self.results: ResultReading = "read"
        """How its results reach the judge; likewise."""
        self._spin_until = 0.0
        self._closed = False
        self.is_gone = False
        """Whether it was killed, and not a process of it is left."""
        self.pid = 0
        """The process that candidate code will run in, as the judge sees it. Known once it is ready."""
        self.reader: Reader | None = None
        """How the judge reads its results; opened at the first read."""
        self.arenas: Arenas | None = None
        """What it sees of the judge's memory; likewise."""
        self.layers: tuple[Layer, ...] = ()
        self.candidate_key: str | None = None
        """The implementation that was loaded into it last; None while it is a spare."""
        self.package = ""
        """Whose other implementations may be loaded into it as well; empty: nobody's."""
        self.loads = 0
        self.is_built = False
        """Whether the native source of its candidate was compiled."""
        commands.setblocking(False)

    @property
    def log_tail(self) -> str:
        """The last of what the worker printed."""
        return self._pipes.log_tail

    def clear_log(self) -> None:
        """Forget what was printed so far: the next case's record gets its own tail."""
        self._pipes.clear_log()

    @property
    def warden_pid(self) -> int | None:
        """Process 1 of the worker's namespace; None until it has reported."""
        return self._pipes.warden_pid

    def wait_ready(self, deadline: float) -> None:
        """Until the sandbox is closed and the device open."""
        reply = self._receive(deadline)
        if not isinstance(reply, Ready):
            raise BadReplyError(f"expected the worker to report ready, got {type(reply).__name__}")
        self._find_pid(deadline)
        self.layers = reply.layers

    def _find_pid(self, deadline: float) -> None:
        """The warden's only child: no candidate code has run yet."""
        while self.warden_pid is None and not self._pipes.has_ended:
            self._pump(max(deadline, time.monotonic() + _GRACE_SECONDS))
        found = children(self.warden_pid) if self.warden_pid is not None else []
        if not found:
            raise WorkerEndedError(self._pipes.ending)
        self.pid = found[0]

    def ask(self, command: Command, deadline: float, descriptor: int | None = None) -> Reply:
        """Send a command, let the worker go if it stands still, and wait for its reply until the deadline."""
        self.post(command, deadline, descriptor)
        self.thaw()
        return self.answer_to(command, deadline)

    def post(self, command: Command, deadline: float, descriptor: int | None = None) -> None:
        """Send a command. A worker that stands still finds it when it is let go.

        What is to be watched is looked at before: afterwards a clock may run.
        """
        self.check_silence()
        if self._usage.are_due(time.monotonic()):
            self._watch_now()
        self._send(frame(command), descriptor, deadline)

    def send_ahead(
        self, command: Command, deadline: float, take: Callable[[Reply], None], descriptor: int | None = None
    ) -> None:
        """Send a command to a worker that stands still, and leave it so: waking it would take longer than the command.

        It is carried out before the next one that is waited for; ``take`` gets the reply then, and may raise.
        """
        self._send(frame(command), descriptor, deadline)
        self._ahead.append((command.token, take))

    def settle(self, deadline: float) -> None:
        """Have it carry out what was sent ahead."""
        self.thaw()
        self._take_earlier_replies(deadline)
        self.freeze()

    def answer_to(self, command: Command, deadline: float) -> Reply:
        """Wait for the reply to a command that was posted."""
        self._spin_until = time.monotonic() + _SPIN_SECONDS
        self._take_earlier_replies(deadline)
        return self._reply_to(command.token, deadline)

    def _take_earlier_replies(self, deadline: float) -> None:
        while self._ahead:
            token, take = self._ahead.popleft()
            take(self._reply_to(token, deadline))

    def _reply_to(self, token: str, deadline: float) -> Reply:
        reply = self._receive(deadline)
        if isinstance(reply, Ready) or reply.token != token:
            raise BadReplyError("a reply to something that was not asked")
        return reply

    def go(self) -> None:
        """Let a worker that is armed begin."""
        try:
            self._commands.send(GO)
        except OSError:
            self._pipes.await_end()
            raise WorkerEndedError(self._pipes.ending) from None

    def check_silence(self) -> None:
        """Between commands a worker has nothing to say: bytes on the reply pipe were written by the candidate."""
        self._pipes.read_available()
        if self._pipes.unread_bytes:
            raise BadReplyError(f"{self._pipes.unread_bytes} bytes on the reply pipe that nothing asked for")

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
                self._pump(deadline)
            except (BrokenPipeError, ConnectionResetError):
                self._pipes.await_end()
                raise WorkerEndedError(self._pipes.ending) from None

    def _receive(self, deadline: float) -> Reply:
        while True:
            reply = self._pipes.take_reply()
            if reply is not None:
                return reply
            if self._pipes.has_ended:
                raise WorkerEndedError(self._pipes.ending)
            self._pump(deadline)

    def _pump(self, deadline: float) -> None:
        """Wait for anything to read; keep watch meanwhile."""
        now = time.monotonic()
        quiet = not self._wait_for_news(max(0.0, min(deadline - now, WATCH_SECONDS)))
        if now >= deadline and (quiet or now >= deadline + _GRACE_SECONDS):
            # A judge that had no core for it until now says what took the time, not only that it is over:
            self._usage.count(self.warden_pid)
            raise OverranError
        self._pipes.read_available()
        # By the clock, not by silence: a worker that keeps talking is watched too. But not once its answer is here, as
        # it may be timed: a candidate that makes the judge look earlier, by some output, must gain nothing by it.
        if self._usage.are_due(now) and not self._pipes.has_answer():
            self._watch_now()

    def _watch_now(self) -> None:
        if self._hold is not None:
            self._hold.bury_dead()
        self._usage.check(self.warden_pid)

    def _wait_for_news(self, seconds: float) -> bool:
        """Whether there is something to read before the time is over.

        Looks again and again for a moment before it sleeps: waking up takes as long as a small kernel, and not always
        the same. Not where the judge has no core of its own to do it on, or others need it.
        """
        if self._may_spin and self.is_urgent:
            end = time.monotonic() + seconds
            until = min(self._spin_until, end)
            while time.monotonic() < until:
                if self._pipes.has_news(0):
                    return True
            seconds = max(0.0, end - time.monotonic())
        return self._pipes.has_news(seconds * 1000)

    def prove(self) -> None:
        """See that it can be held, and let it go again. While it holds nothing but our own code: a refusal now is the
        machine's, and any later one is the candidate's doing.
        """
        self._choose_hold()
        try:
            self.freeze()
        except OverLimitError:
            if self._hold is not None and self._hold.refusal is not None:
                raise InfrastructureError(
                    f"the judge may not stop its own worker ({self._hold.refusal.strerror}). "
                    "Allow ptrace (in a container: --cap-add SYS_PTRACE)."
                ) from None
            raise
        self.thaw()

    def _choose_hold(self) -> None:
        """By tracing where the machine allows it; otherwise by signals, which is weaker."""
        if self._hold is not None or self.warden_pid is None:
            return
        try:
            linux_calls.trace(self.pid)
        except OSError as refusal:
            if refusal.errno in _REFUSALS:
                self.holding, self._hold = "stopped", StopHold(self.warden_pid)

    @property
    def stands_still(self) -> bool:
        """Whether it is held."""
        return self._hold is not None and self._hold.is_holding

    def freeze(self) -> None:
        """Stop every thread of every process that the candidate has, and wait until they stand still.

        A frozen worker can neither finish a call after having reported it done, nor begin the next one before the
        clock runs. What its device still does goes on. Why nothing is left running: ``ptrace_freezing.py``.
        """
        self._pipes.read_status()
        if self.warden_pid is None or not self.pid or self._pipes.has_ended:
            return
        if self._hold is None:
            self._hold = Hold(self.warden_pid, self._tug_the_leash)
        try:
            self._hold.take()
        except NotStillError as error:
            raise OverLimitError("processes", str(error)) from None

    @property
    def held_threads(self) -> int:
        """How many threads it has that stand still."""
        return 0 if self._hold is None else self._hold.threads

    def _tug_the_leash(self) -> None:
        """The warden ends, and everything with it, as if the judge had let go."""
        with contextlib.suppress(OSError):
            os.write(self._leash, b"x")

    def thaw(self) -> None:
        """Let it go on. Quick: this is on the clock."""
        if self._hold is None:
            return
        killed = self._hold.release()
        if killed and self.pid not in killed:
            # A held process takes no time of its own, but its death takes the kernel's, while somebody else is timed.
            raise OverLimitError("processes", "a process of the worker's died while it was held still")

    def check_alive(self) -> None:
        """Raise if its process has been killed: that there is no memory of it to be read then proves nothing."""
        if self._hold is not None and self._hold.was_killed(self.pid):
            raise WorkerEndedError(None)

    def kill(self) -> None:
        """End the worker and everything that it started, and wait until the kernel says so, or for long enough.

        Then :attr:`is_gone` tells which.
        """
        if self._closed:
            return
        self._pipes.read_status()
        if self._hold is not None:
            self._hold.release()  # what stands still is slow to die where a device driver has to clean up after it
            self._hold.close()
        os.close(self._leash)
        self.is_gone = self.warden_pid is None or wait_for_exit(self.warden_pid, self._hold)
        if self.reader is not None:
            self.reader.close()
        if self.arenas is not None:
            self.arenas.close()
        self._closed = True
        self._pipes.close()
        self._commands.close()
