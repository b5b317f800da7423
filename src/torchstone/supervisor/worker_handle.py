"""The judge's end of one worker: ask, wait, notice every way in which it can fail to answer.

Whatever happens to the worker comes out of :meth:`Worker.ask` as a reply or as one of the exceptions below;
the caller turns them into verdicts. Nothing here waits without a deadline.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from torchstone.errors import InfrastructureError
from torchstone.isolation import linux_calls
from torchstone.processes.resident_memory import proportional_bytes, resident_bytes
from torchstone.protocol.messages import (
    GO,
    HEADER_BYTES,
    MAX_REPLY_BYTES,
    Command,
    Ending,
    Failed,
    Ready,
    Reply,
    frame,
    frame_length,
)
from torchstone.schema import Holding, Layer, Limits, ResultReading, decode
from torchstone.supervisor.freezing import Hold, NotStillError, children, descendants
from torchstone.supervisor.stopping import StopHold

if TYPE_CHECKING:
    from torchstone.protocol.buffers import Arenas
    from torchstone.supervisor.result_reading import Reader

PIPE_BYTES = 1 << 20
"""Room in a worker's pipes: one that prints much should not wait for the judge at every page."""
_LOG_READS = 4
"""At a time: a candidate that prints without end must not keep the judge from looking at the clock."""
_WATCH_SECONDS = 0.05
_SPIN_SECONDS = 0.05
"""How long an answer is looked for again and again before the judge sleeps: longer than any timed block takes."""
_END_SECONDS = 5.0
_GONE_SECONDS = 30.0
"""Until all processes of a worker that was killed have ended: to give back its memory can take the system seconds."""
_REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS)
"""Of ptrace, by a machine that does not let anyone trace."""
_GRACE_SECONDS = 0.1
"""A reply that lies in the pipe when the deadline passes is still read; one that never ends is not."""


class WorkerEndedError(Exception):
    """The worker's process is gone."""

    def __init__(self, ending: Ending | None) -> None:
        super().__init__(str(ending))
        self.ending = ending
        """None: its warden did not report, so it was not the candidate alone that ended."""


class OverranError(Exception):
    """No reply before the deadline."""


class BadReplyError(Exception):
    """The reply is not one that the worker's own code sends: the candidate wrote to the pipe."""


class OverLimitError(Exception):
    """The worker and what it started use more than they may."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


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
        self._replies = replies
        self._log = log
        self._status = status
        self._leash = leash
        self._limits = limits
        self.cores = cores
        # A judge that spins on a busy machine has used up its share of a core when the answer comes, and waits for
        # another. Where workers are bound to cores, because they are timed on them, the judge sleeps.
        self._may_spin = not cores and len(os.sched_getaffinity(0)) > 1
        self.is_urgent = True
        """Whether it matters when exactly an answer comes: it does to a clock, not to a check beside other judges."""
        self._ahead: deque[tuple[str, Callable[[Reply], None]]] = deque()
        """Commands that were sent and not waited for: their tokens, and who takes the replies."""
        self._reply_bytes = bytearray()
        self._status_bytes = bytearray()
        self._tail = bytearray()
        self._hold: Hold | StopHold | None = None
        self.holding: Holding = "traced"
        """How it is held still; known once that has been tried."""
        self.results: ResultReading = "read"
        """How its results reach the judge; likewise."""
        self._watch_again = time.monotonic() + _WATCH_SECONDS
        self._spin_until = 0.0
        self._ended = False
        self._closed = False
        self.is_gone = False
        """Whether it was killed, and not a process of it is left."""
        self._ending: Ending | None = None
        self.warden_pid: int | None = None
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
        for descriptor in (replies, log, status):
            os.set_blocking(descriptor, False)
        commands.setblocking(False)
        self._poll = select.poll()
        for descriptor in (replies, log, status):
            self._poll.register(descriptor, select.POLLIN)

    @property
    def log_tail(self) -> str:
        """The last of what the worker printed."""
        self._drain_log()
        return self._tail.decode("utf-8", "replace")

    def clear_log(self) -> None:
        """Forget what was printed so far: the next case's record gets its own tail."""
        self._drain_log()
        self._tail.clear()

    def wait_ready(self, deadline: float) -> None:
        """Until the sandbox is closed and the device open."""
        reply = self._receive(deadline)
        if not isinstance(reply, Ready):
            raise BadReplyError(f"expected the worker to report ready, got {type(reply).__name__}")
        self._find_pid(deadline)
        self.layers = reply.layers

    def _find_pid(self, deadline: float) -> None:
        """The warden's only child: no candidate code has run yet."""
        while self.warden_pid is None and not self._ended:
            self._pump(max(deadline, time.monotonic() + _GRACE_SECONDS))
        found = children(self.warden_pid) if self.warden_pid is not None else []
        if not found:
            raise WorkerEndedError(self._ending)
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
        if time.monotonic() >= self._watch_again:
            self._watch_now()
        self._send(frame(command), descriptor, deadline)

    def send_ahead(
        self, command: Command, deadline: float, take: Callable[[Reply], None], descriptor: int | None = None
    ) -> None:
        """Send a command to a worker that stands still, and leave it so: to wake it for little takes longer than that.

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
            self._await_end()
            raise WorkerEndedError(self._ending) from None

    def check_silence(self) -> None:
        """Between commands a worker has nothing to say: bytes on the reply pipe were written by the candidate."""
        self._read_available()
        if self._reply_bytes:
            raise BadReplyError(f"{len(self._reply_bytes)} bytes on the reply pipe that nothing asked for")

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
                self._await_end()
                raise WorkerEndedError(self._ending) from None

    def _receive(self, deadline: float) -> Reply:
        while True:
            reply = self._take_reply()
            if reply is not None:
                return reply
            if self._ended:
                raise WorkerEndedError(self._ending)
            self._pump(deadline)

    def _take_reply(self) -> Reply | None:
        if len(self._reply_bytes) < HEADER_BYTES:
            return None
        length = frame_length(bytes(self._reply_bytes[:HEADER_BYTES]))
        if length > MAX_REPLY_BYTES:
            raise BadReplyError(f"a reply of {length} bytes (at most {MAX_REPLY_BYTES} are accepted)")
        if len(self._reply_bytes) < HEADER_BYTES + length:
            return None
        data = bytes(self._reply_bytes[HEADER_BYTES : HEADER_BYTES + length])
        del self._reply_bytes[: HEADER_BYTES + length]
        try:
            return decode(data, Reply)  # type: ignore[arg-type]
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise BadReplyError(f"a reply that does not decode: {error}") from None

    def _pump(self, deadline: float) -> None:
        """Wait for anything to read; keep watch meanwhile."""
        now = time.monotonic()
        quiet = not self._wait_for_news(max(0.0, min(deadline - now, _WATCH_SECONDS)))
        if now >= deadline and (quiet or now >= deadline + _GRACE_SECONDS):
            self._count()  # a judge that had no core for it until now says what took the time, not only that it is over
            raise OverranError
        self._read_available()
        # By the clock, not by silence: a worker that keeps talking is watched too. But not once its answer is here, as
        # somebody may be timing it: who makes the judge look earlier, by a word in between, must gain nothing by it.
        if now >= self._watch_again and not self._has_answer():
            self._watch_now()

    def _has_answer(self) -> bool:
        """Whether a whole reply was read, or one that is none."""
        length = len(self._reply_bytes)
        return length >= HEADER_BYTES and length >= HEADER_BYTES + frame_length(bytes(self._reply_bytes[:HEADER_BYTES]))

    def _watch_now(self) -> None:
        self._watch_again = time.monotonic() + _WATCH_SECONDS
        self._watch()

    def _wait_for_news(self, seconds: float) -> bool:
        """Whether there is something to read before the time is over.

        Looks again and again for a moment before it sleeps: waking up takes as long as a small kernel, and not always
        the same. Not where the judge has no core of its own to do it on, or others need it.
        """
        if self._may_spin and self.is_urgent:
            end = time.monotonic() + seconds
            until = min(self._spin_until, end)
            while time.monotonic() < until:
                if self._poll.poll(0):
                    return True
            seconds = max(0.0, end - time.monotonic())
        return bool(self._poll.poll(seconds * 1000))

    def _read_available(self) -> None:
        self._drain_log()
        self._read_status()
        # Bounded: a candidate that floods the pipe must not fill the judge's memory.
        while len(self._reply_bytes) <= MAX_REPLY_BYTES + HEADER_BYTES:
            data = _read(self._replies)
            if not data:
                if data == b"" and not self._ended:
                    self._await_end()
                return
            self._reply_bytes += data

    def _drain_log(self) -> None:
        for _ in range(_LOG_READS):
            if self._closed or not (data := _read(self._log)):
                return
            self._tail += data
            del self._tail[: -self._limits.log_tail_bytes]

    def _read_status(self) -> None:
        while (data := _read(self._status)) is not None:
            if data == b"":
                self._ended = True
                return
            self._status_bytes += data
            self._parse_status()

    def _parse_status(self) -> None:
        """First the warden's pid, then, in the end, how the worker ended. Written by trusted processes only."""
        while len(self._status_bytes) >= HEADER_BYTES:
            length = frame_length(bytes(self._status_bytes[:HEADER_BYTES]))
            if len(self._status_bytes) < HEADER_BYTES + length:
                return
            data = bytes(self._status_bytes[HEADER_BYTES : HEADER_BYTES + length])
            del self._status_bytes[: HEADER_BYTES + length]
            if self.warden_pid is None:
                self.warden_pid = msgspec.json.decode(data, type=int)
            else:
                self._ending = msgspec.json.decode(data, type=Ending)

    def _await_end(self) -> None:
        """The worker's pipe is closed: its warden is about to say how it ended."""
        until = time.monotonic() + _END_SECONDS
        while not self._ended and time.monotonic() < until:
            select.select([self._status, self._log], [], [], 0.05)
            self._read_status()
            self._drain_log()
        self._ended = True

    def _watch(self) -> None:
        """Count memory and processes of the whole tree; a limit per process alone could be forked around."""
        if self._hold is not None:
            self._hold.bury_dead()
        pids = self._count()
        limit = self._limits.memory_bytes
        # Pages shared since a fork are counted in every process at first; only if that is too much, look closely.
        if sum(resident_bytes(pid) for pid in pids) > limit:
            used = self._used_bytes(pids)
            if used > limit:
                raise OverLimitError("memory", f"{used >> 20} MiB resident (limit {limit >> 20} MiB)")

    def _count(self) -> list[int]:
        """Its processes, if they are not too many."""
        pids = descendants(self.warden_pid) if self.warden_pid is not None else []
        if len(pids) > self._limits.processes:
            raise OverLimitError("processes", f"{len(pids)} processes (limit {self._limits.processes})")
        return pids

    def _used_bytes(self, pids: list[int]) -> int:
        """What they use together. A process that forks lets nobody look for a while: a hundred of them took the judge
        5 s, in which they became three hundred. So they are counted again where looking takes long.
        """
        used = 0
        count_again = time.monotonic() + _WATCH_SECONDS
        for pid in pids:
            used += proportional_bytes(pid)
            if time.monotonic() >= count_again:
                self._count()
                count_again = time.monotonic() + _WATCH_SECONDS
        return used

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
        clock runs. What its device still does goes on. Why nothing is left running: ``freezing.py``.
        """
        self._read_status()
        if self.warden_pid is None or not self.pid or self._ended:
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
        self._read_status()
        if self._hold is not None:
            self._hold.release()  # what stands still is slow to die where a device driver has to clean up after it
            self._hold.close()
        os.close(self._leash)
        self.is_gone = self.warden_pid is None or self._wait_for_exit(self.warden_pid)
        if self.reader is not None:
            self.reader.close()
        if self.arenas is not None:
            self.arenas.close()
        self._drain_log()
        self._closed = True
        self._commands.close()
        for descriptor in (self._replies, self._log, self._status):
            os.close(descriptor)

    def _wait_for_exit(self, pid: int) -> bool:
        """Whether the process is gone in time. A warden is only gone when its whole pid namespace is."""
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        except OSError:  # a system without it
            return _has_vanished(pid, _GONE_SECONDS)
        try:
            if self._hold is None:
                return _has_ended(descriptor, _GONE_SECONDS)
            self._hold.bury(_GONE_SECONDS, lambda seconds: _has_ended(descriptor, seconds))
            return _has_ended(descriptor, 0)
        finally:
            os.close(descriptor)


def _has_ended(process: int, seconds: float) -> bool:
    return bool(select.select([process], [], [], seconds)[0])


def _has_vanished(pid: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while os.path.exists(f"/proc/{pid}"):
        if time.monotonic() > until:
            return False
        time.sleep(_WATCH_SECONDS)
    return True


def _read(descriptor: int) -> bytes | None:
    """What is there to read; empty at the end, None if there is nothing now."""
    try:
        return os.read(descriptor, PIPE_BYTES)
    except BlockingIOError:
        return None


__all__ = ["BadReplyError", "Failed", "OverLimitError", "OverranError", "Worker", "WorkerEndedError", "descendants"]
