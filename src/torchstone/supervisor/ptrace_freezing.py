"""Freezes a worker by ptrace: every thread of the worker and of all processes that it has started.

All of them lie below the *warden*: the trusted process that forks the worker and waits for its end (``zygote.py``).

SIGSTOP does not suffice: any SIGCONT ends it, and a process has a dozen ways to get one. A cgroup does not suffice:
many containers do not allow one. A thread leaves a tracing stop in two ways only: its tracer lets it go, or SIGKILL
ends it.

**The procedure.** The judge walks the tree from the warden down and holds every thread that it finds. Then it makes a
pass over the tree from the bottom up, the warden last. For every thread the pass reads the children and, after that,
the state. The pass counts only if each thread

* has no child that the walk did not meet, and
* was held before the pass began, and is in a tracing stop of this very thread; or was seen dead before the pass began,
  and still is.

Otherwise everything is done again. The judge's own notes prove nothing: a thread that calls ``execve`` takes over the
number of the first thread of its process, and runs.

**Why nothing is left running.** Suppose that a pass counts and some thread still runs. It was not visited, so its
process was not met by the walk, or descends from a process that has ended since. Call these processes *strays*. All
chains of parents end at the warden, so at every moment some stray is the child of a visited thread or of the warden.

A held thread makes no children. So a stray stays below its parent until that ends. Then it moves up, to another
thread of the same process or to an ancestor that adopts orphans. Parents are read after all that is below them, so
that the warden's list shows the stray at the latest. Three things could keep it off a list, and each makes the pass
void:

* a thread is gone since it was listed;
* a thread has died since the pass began; its children may have moved to a thread that was read before;
* the warden's list differs when it is read again; the kernel may skip entries while one is reaped.

**Threads that end meanwhile.** The tracer must take note of a thread's end (``waitpid``) before its parent can. A
thread that dies slowly (its memory is being cleared) counts as moving until it is dead. The first thread of a process
may be dead while others live; that is never reported, but seen. A thread that dies *after* the pass was killed by a
timer set beforehand, or from outside: :meth:`Hold.release` says so.

**Why it ends.** Each step has the same deadline. A process that is not still by then is ended. That includes a parent
that waits in ``vfork`` for a held child. One step can block in the kernel: ``execve`` waits for threads that end only
when the tracer takes note, and the thread is not traced meanwhile. Therefore an :class:`Alarm` ends the worker from
another thread, and the system call returns.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable

from torchstone.isolation import linux_calls

_STILL_SECONDS = 3.0
_ALARM_SECONDS = 4.0
MOST_PROCESSES = 4096
"""More are not looked at."""
_GONE = -1
"""Stands for a signal: the thread has ended."""
_PATIENT_LOOKS = 256
"""Looks for a stop without a pause. A thread that has not stopped by then is dying, or waits for another one."""
_PAUSE_SECONDS = 0.0002


class NotStillError(Exception):
    """Something of the worker's cannot be held."""


class Alarm:
    """Calls a function, on a thread of its own, unless it is called off in time.

    Setting it and calling it off are one system call each and wake nobody: both happen at every block of calls.
    """

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._timer = linux_calls.timer()
        self._closed = False
        self.rang = False
        self._thread = threading.Thread(target=self._wait, name="alarm", daemon=True)
        self._thread.start()

    def set(self, seconds: float) -> None:
        linux_calls.set_timer(self._timer, seconds)

    def call_off(self) -> None:
        linux_calls.set_timer(self._timer, 0)

    def _wait(self) -> None:
        os.read(self._timer, 8)
        if not self._closed:
            self.rang = True
            self._action()

    def close(self) -> None:
        """Wait until the action is over, should it be under way."""
        self._closed = True
        self.set(1e-6)
        self._thread.join()
        os.close(self._timer)


class Hold:
    """The threads below a warden. All calls must come from the same thread: it is the tracer."""

    def __init__(self, warden: int, end_worker: Callable[[], None]) -> None:
        """``end_worker`` must end every process of the worker without their help; it is called from another thread."""
        self._warden = warden
        self._tracer = threading.get_native_id()
        self._held: dict[int, int] = {}
        """Threads that stand still, and the signal that each was about to get (0: none)."""
        self._traced: set[int] = set()
        """Threads that we trace, held or dying: nobody else can wait for their end before we have."""
        self._alarm = Alarm(end_worker)
        self.refusal: OSError | None = None
        """What the kernel answered last when it refused to trace a thread that is alive."""

    @property
    def is_holding(self) -> bool:
        """Whether the worker stands still."""
        return bool(self._held)

    @property
    def threads(self) -> int:
        """How many stand still."""
        return len(self._held)

    def take(self) -> None:
        """Hold everything still. See above."""
        until = time.monotonic() + _STILL_SECONDS
        self._alarm.set(_ALARM_SECONDS)
        try:
            while True:
                known = _walk(self._warden)
                del known[self._warden]
                self._hold([thread for threads in known.values() for thread in threads], until)
                if self._are_still(list(known)):
                    break
                if time.monotonic() > until:
                    raise NotStillError("the worker's processes do not stop")
        finally:
            self._alarm.call_off()
        if self._alarm.rang:
            raise NotStillError("the worker's processes do not stop")
        self.bury_dead()

    def _are_still(self, known: list[int]) -> bool:
        """One pass: whether everything was still before it began, and there is nothing but what is known."""
        processes = set(known)
        still: dict[int, int] = {}
        for pid in reversed(known):
            for thread in threads_of(pid):
                signal_number = self._held.get(thread)
                if signal_number is None:
                    return False
                try:
                    below = _children_of(pid, thread)
                    state, tracer = state_of(pid, thread)  # read last: if it is alive, it was their parent until now
                except OSError:
                    return False
                is_stopped = state == "t" and tracer == self._tracer
                if not (state in "ZX" if signal_number == _GONE else is_stopped):
                    del self._held[thread]
                    return False
                if not processes.issuperset(below):
                    return False
                still[thread] = signal_number
        adopted = _children_or_none(self._warden, self._warden)
        if not processes.issuperset(adopted) or adopted != _children_or_none(self._warden, self._warden):
            return False
        self._held = still  # without those that ended meanwhile
        return True

    def _hold(self, threads: list[int], until: float) -> None:
        """Those that are not held yet: first have all of them stop, then wait for each."""
        for thread in [thread for thread in threads if thread not in self._held and self._interrupt(thread)]:
            self._await_stop(thread, until)

    def _interrupt(self, thread: int) -> bool:
        """Have it stop. False: it has ended, or cannot be traced now; another pass will tell."""
        try:
            linux_calls.trace(thread)
            self._traced.add(thread)
        except ProcessLookupError:
            return False
        except OSError as refusal:
            if not self._is_traced(thread, refusal):
                return False
        try:
            linux_calls.interrupt(thread)
        except OSError:
            return False
        return True

    def _is_traced(self, thread: int, refusal: OSError) -> bool:
        """Whether a refused thread is traced by us already: it dies slowly, or took over a number. False if dead."""
        try:
            state, tracer = state_of(thread, thread)
        except OSError:
            return False
        if tracer == self._tracer:
            self._traced.add(thread)
        if state in "ZX":
            self._held[thread] = _GONE
            self._bury(thread)
            return False
        if tracer != self._tracer:
            self.refusal = refusal
        return tracer == self._tracer

    def _await_stop(self, thread: int, until: float) -> None:
        for look in range(1 << 62):
            try:
                signal_number = linux_calls.stop_of(thread)
            except (ProcessLookupError, ChildProcessError):  # ended; or has another number now
                self._traced.discard(thread)
                return
            if signal_number is not None:
                self._held[thread] = signal_number
                return
            if look < _PATIENT_LOOKS:
                continue
            time.sleep(_PAUSE_SECONDS)
            if time.monotonic() > until:
                raise NotStillError("the worker's processes do not stop")
            if self._is_unreported(thread):
                return

    def _is_unreported(self, thread: int) -> bool:
        """Whether it ended or stopped, but will not be reported. The next pass looks at it again.

        The end of a process's first thread is not reported while others live. The stop of a thread that took over a
        number may have been reported before.
        """
        with contextlib.suppress(OSError):
            state, tracer = state_of(thread, thread)
            signal_number = linux_calls.stop_of(thread)  # between the two it may have been reported after all
            if signal_number is not None or (state == "t" and tracer == self._tracer):
                self._held[thread] = signal_number or 0
                return True
            if state in "ZX":
                self._held[thread] = _GONE
                return True
        return False

    def was_killed(self, thread: int) -> bool:
        """Whether it is dead, or on its way: a thread that is held leaves its stop for nothing else."""
        try:
            state, _ = state_of(thread, thread)
        except OSError:
            return True
        return state in "ZX" or (thread in self._held and state != "t")

    def release(self) -> list[int]:
        """Let everything go on; returns the threads that were killed while they stood still. Quick: on the clock."""
        held, self._held = self._held, {}
        killed: list[int] = []
        traced = self._traced
        for thread, signal_number in held.items():
            if signal_number != _GONE:
                try:
                    linux_calls.untrace(thread, signal_number)
                    traced.discard(thread)
                except OSError:
                    killed.append(thread)
        if killed:
            self.bury(_STILL_SECONDS, lambda _: traced.isdisjoint(killed))
        return killed

    def bury(self, seconds: float, is_over: Callable[[float], bool]) -> None:
        """Take note of the end of what we traced: before that neither its parent nor its namespace can.

        ``is_over`` waits a moment and says whether there is nothing left to wait for.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for thread in sorted(self._traced, reverse=True):  # a process is not over before its threads are
                self._bury(thread)
            if is_over(_PAUSE_SECONDS if self._traced else left):
                return

    def bury_dead(self) -> None:
        """Take note of the traced threads that are dead by now; of a process's first thread only after its others."""
        for thread in [thread for thread in self._traced if self._held.get(thread, _GONE) == _GONE]:
            self._bury(thread)

    def _bury(self, thread: int) -> None:
        try:
            linux_calls.stop_of(thread)
        except (ProcessLookupError, ChildProcessError):
            self._traced.discard(thread)

    def close(self) -> None:
        self._alarm.close()


def descendants(pid: int) -> list[int]:
    """The process and all below it, as far as they still exist."""
    return list(_walk(pid))


def children(pid: int) -> list[int]:
    """The processes that a process has started or adopted."""
    return [child for thread in threads_of(pid) for child in _children_or_none(pid, thread)]


def _walk(pid: int) -> dict[int, list[int]]:
    """A process and all below it, each before what is below it, with their threads."""
    found: dict[int, list[int]] = {}
    open_pids = [pid]
    while open_pids and len(found) <= MOST_PROCESSES:
        current = open_pids.pop()
        found[current] = threads_of(current)
        for thread in found[current]:
            open_pids += _children_or_none(current, thread)
    return found


def threads_of(pid: int) -> list[int]:
    """Its threads; an empty list if the process is gone: whatever it had started has another parent by then."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _children_of(pid: int, thread: int) -> list[int]:
    """To the end of the file, which the kernel hands out a page at a time."""
    descriptor = os.open(f"/proc/{pid}/task/{thread}/children", os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while more := os.read(descriptor, 1 << 16):
            text += more
    finally:
        os.close(descriptor)
    return [int(child) for child in text.split()]


def _children_or_none(pid: int, thread: int) -> list[int]:
    """Its children; an empty list if the thread is gone: another one of its process has them, or an ancestor."""
    try:
        return _children_of(pid, thread)
    except OSError:
        return []


def state_of(pid: int, thread: int) -> tuple[str, int]:
    """The letter of its state, and its tracer. A name cannot forge them: line breaks in it are escaped."""
    descriptor = os.open(f"/proc/{pid}/task/{thread}/status", os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(descriptor, 1024)
    finally:
        os.close(descriptor)
    state, tracer = text.index(b"\nState:\t") + 8, text.index(b"\nTracerPid:\t") + 12
    return chr(text[state]), int(text[tracer : text.index(b"\n", tracer)])
