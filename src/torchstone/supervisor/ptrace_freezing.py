"""Freezes a worker by ptrace: every thread of the worker and of all processes that it has started.

All of them lie below the *warden*: the trusted process that forks the worker and waits for its end (``zygote.py``).

SIGSTOP does not suffice: any SIGCONT ends the stop, and a process can get one in a dozen ways. A cgroup does not
suffice: many containers do not allow one. A thread leaves a ptrace stop in two ways only: its tracer resumes it, or
SIGKILL ends it. A thread in a ptrace stop of this judge is *frozen*.

**The procedure.** The judge walks the tree from the warden down and freezes every thread that it finds. Then it makes a
pass over the tree from the bottom up, the warden last. For every thread the pass reads the children and, after that,
the state. The pass is valid only if each thread

* has no child that the walk did not find, and
* was frozen before the pass began, and is in a ptrace stop of this very thread; or was dead before the pass began, and
  still is.

Otherwise the judge repeats both steps. Its own list of frozen threads proves nothing: a thread that calls ``execve``
gets the id of its process's first thread, and runs.

**Why nothing is left running.** Suppose that a pass is valid and some thread still runs. It was not visited, so the
walk did not find its process, or its process descends from one that has ended since. Call these processes *strays*. All
chains of parents end at the warden, so at every moment some stray is the child of a visited thread or of the warden.

A frozen thread creates no children. So a stray stays below its parent until the parent ends. Then it moves up, to
another thread of the same process or to an ancestor that adopts orphans. Parents are read after all their descendants,
so that the warden's list shows the stray at the latest. Three events could keep it off a list, and each makes the pass
invalid:

* a thread has ended since it was listed;
* a thread has died since the pass began; its children may have moved to a thread that was read before;
* the warden's list differs when it is read again; the kernel may skip entries while one is reaped.

**Threads that end meanwhile.** The tracer must reap a thread (``waitpid``) before the thread's parent can. A thread
that dies slowly (its memory is being freed) counts as running until it is dead. The first thread of a process may be
dead while others live. ``waitpid`` does not report that, so the state is read from ``/proc``. A thread that dies
*after* the pass was killed by a timer set beforehand, or from outside: :meth:`PtraceFreezer.thaw` returns it.

**Why it terminates.** All steps have the same deadline. A worker that is not frozen by then is ended. One cause is a
parent that waits in ``vfork`` for a frozen child. One step can block in the kernel. ``execve`` waits for threads that
end only when the tracer reaps them, and the calling thread is not traced meanwhile. Therefore an :class:`Alarm` ends
the worker from another thread, and the system call returns.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable

from torchstone.isolation import linux_calls

_FREEZE_SECONDS = 3.0
"""Longest time for freezing a worker. Past it, the worker counts as one that cannot be frozen."""
_ALARM_SECONDS = 4.0
"""After this time of freezing another thread ends the worker, in case a system call blocks past the deadline."""
MOST_PROCESSES = 4096
"""Most processes that a walk of the tree visits."""
_ENDED = -1
"""Used instead of a signal number: the thread has ended."""
_POLLS_WITHOUT_PAUSE = 256
"""Checks for a stop without a pause. A thread that has not stopped by then is dying, or waits for another one."""
_PAUSE_SECONDS = 0.0002


class CannotFreezeError(Exception):
    """A thread of the worker cannot be frozen."""


class Alarm:
    """Calls a function on a thread of its own after a time, unless it is cancelled before.

    Setting and cancelling take one system call each and wake no thread: both happen at every block of calls.
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
        """End the thread; waits for the action if it is running."""
        self._closed = True
        self.set(1e-6)
        self._thread.join()
        os.close(self._timer)


class PtraceFreezer:
    """Freezes and resumes the threads below a warden. All calls must come from the same thread: it is the tracer."""

    def __init__(self, warden: int, end_worker: Callable[[], None]) -> None:
        """``end_worker`` must end every process of the worker, frozen ones too. It is called from another thread."""
        self._warden = warden
        self._tracer = threading.get_native_id()
        self._frozen: dict[int, int] = {}
        """Frozen threads, and the signal that each was about to get (0: none; :data:`_ENDED`: the thread has ended)."""
        self._traced: set[int] = set()
        """Threads that the judge traces, frozen or dying: it must reap them before their parents can."""
        self._alarm = Alarm(end_worker)
        self.refusal: OSError | None = None
        """The kernel's last refusal to trace a thread that is alive."""

    @property
    def is_frozen(self) -> bool:
        """Whether the worker is frozen."""
        return bool(self._frozen)

    @property
    def threads(self) -> int:
        """Number of frozen threads."""
        return len(self._frozen)

    def freeze(self) -> None:
        """Freeze every thread, by the procedure above. Raises :class:`CannotFreezeError` if that takes too long."""
        until = time.monotonic() + _FREEZE_SECONDS
        self._alarm.set(_ALARM_SECONDS)
        try:
            while True:
                known = _walk(self._warden)
                del known[self._warden]
                self._freeze_threads([thread for threads in known.values() for thread in threads], until)
                if self._are_all_frozen(list(known)):
                    break
                if time.monotonic() > until:
                    raise CannotFreezeError("the worker's processes do not stop")
        finally:
            self._alarm.call_off()
        if self._alarm.rang:
            raise CannotFreezeError("the worker's processes do not stop")
        self.reap_dead()

    def _are_all_frozen(self, known: list[int]) -> bool:
        """Make one pass: whether every thread was frozen before it began, and no other process exists."""
        processes = set(known)
        still: dict[int, int] = {}
        for pid in reversed(known):
            for thread in threads_of(pid):
                signal_number = self._frozen.get(thread)
                if signal_number is None:
                    return False
                try:
                    below = _children_of(pid, thread)
                    state, tracer = state_of(pid, thread)  # read last: if alive, it was their parent until now
                except OSError:
                    return False
                is_stopped = state == "t" and tracer == self._tracer
                if not (state in "ZX" if signal_number == _ENDED else is_stopped):
                    del self._frozen[thread]
                    return False
                if not processes.issuperset(below):
                    return False
                still[thread] = signal_number
        adopted = _children_or_none(self._warden, self._warden)
        if not processes.issuperset(adopted) or adopted != _children_or_none(self._warden, self._warden):
            return False
        self._frozen = still  # without those that ended meanwhile
        return True

    def _freeze_threads(self, threads: list[int], until: float) -> None:
        """Freeze the threads that are not frozen yet: interrupt all of them, then wait for each to stop."""
        for thread in [thread for thread in threads if thread not in self._frozen and self._interrupt(thread)]:
            self._await_stop(thread, until)

    def _interrupt(self, thread: int) -> bool:
        """Trace and interrupt a thread. False: it has ended, or cannot be traced now; the next pass checks it again."""
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
        """Whether the judge traces a thread already, after a refusal: it dies slowly, or has another thread's id.

        False if the thread is dead.
        """
        try:
            state, tracer = state_of(thread, thread)
        except OSError:
            return False
        if tracer == self._tracer:
            self._traced.add(thread)
        if state in "ZX":
            self._frozen[thread] = _ENDED
            self._reap(thread)
            return False
        if tracer != self._tracer:
            self.refusal = refusal
        return tracer == self._tracer

    def _await_stop(self, thread: int, until: float) -> None:
        """Wait until a thread stops or ends. Raises :class:`CannotFreezeError` past the deadline."""
        for poll in range(1 << 62):
            try:
                signal_number = linux_calls.stop_of(thread)
            except (ProcessLookupError, ChildProcessError):  # ended, or has another id now
                self._traced.discard(thread)
                return
            if signal_number is not None:
                self._frozen[thread] = signal_number
                return
            if poll < _POLLS_WITHOUT_PAUSE:
                continue
            time.sleep(_PAUSE_SECONDS)
            if time.monotonic() > until:
                raise CannotFreezeError("the worker's processes do not stop")
            if self._is_unreported(thread):
                return

    def _is_unreported(self, thread: int) -> bool:
        """Whether a thread ended or stopped, but ``waitpid`` will not report it. The next pass checks it again.

        ``waitpid`` does not report the end of a process's first thread while others live. It may have reported the stop
        of a thread before that thread got another id.
        """
        with contextlib.suppress(OSError):
            state, tracer = state_of(thread, thread)
            signal_number = linux_calls.stop_of(thread)  # it may have been reported since the state was read
            if signal_number is not None or (state == "t" and tracer == self._tracer):
                self._frozen[thread] = signal_number or 0
                return True
            if state in "ZX":
                self._frozen[thread] = _ENDED
                return True
        return False

    def was_killed(self, thread: int) -> bool:
        """Whether a thread is dead or dying. A frozen thread leaves its stop for no other reason."""
        try:
            state, _ = state_of(thread, thread)
        except OSError:
            return True
        return state in "ZX" or (thread in self._frozen and state != "t")

    def thaw(self) -> list[int]:
        """Resume all threads; return those that were killed while frozen. Is timed as part of a call, so it is fast."""
        frozen, self._frozen = self._frozen, {}
        killed: list[int] = []
        traced = self._traced
        for thread, signal_number in frozen.items():
            if signal_number != _ENDED:
                try:
                    linux_calls.untrace(thread, signal_number)
                    traced.discard(thread)
                except OSError:
                    killed.append(thread)
        if killed:
            self.reap_until_over(_FREEZE_SECONDS, lambda _: traced.isdisjoint(killed))
        return killed

    def reap_until_over(self, seconds: float, is_over: Callable[[float], bool]) -> None:
        """Reap traced threads as they end: before that neither their parents nor their namespace can.

        ``is_over`` waits for at most the given seconds, and returns whether there is nothing left to wait for.
        """
        until = time.monotonic() + seconds
        while (left_seconds := until - time.monotonic()) > 0:
            for thread in sorted(self._traced, reverse=True):  # a process ends after its threads
                self._reap(thread)
            if is_over(_PAUSE_SECONDS if self._traced else left_seconds):
                return

    def reap_dead(self) -> None:
        """Reap the traced threads that are dead by now; the first thread of a process only after its others."""
        for thread in [thread for thread in self._traced if self._frozen.get(thread, _ENDED) == _ENDED]:
            self._reap(thread)

    def _reap(self, thread: int) -> None:
        """Forget a traced thread if ``waitpid`` reports that it has ended."""
        try:
            linux_calls.stop_of(thread)
        except (ProcessLookupError, ChildProcessError):
            self._traced.discard(thread)

    def close(self) -> None:
        self._alarm.close()


def descendants(pid: int) -> list[int]:
    """The process and its descendants, the process first."""
    return list(_walk(pid))


def children(pid: int) -> list[int]:
    """The processes that a process has started or adopted."""
    return [child for thread in threads_of(pid) for child in _children_or_none(pid, thread)]


def _walk(pid: int) -> dict[int, list[int]]:
    """A process and its descendants with their threads; each process comes before its own descendants."""
    found: dict[int, list[int]] = {}
    open_pids = [pid]
    while open_pids and len(found) <= MOST_PROCESSES:
        current = open_pids.pop()
        found[current] = threads_of(current)
        for thread in found[current]:
            open_pids += _children_or_none(current, thread)
    return found


def threads_of(pid: int) -> list[int]:
    """The threads of a process. Empty if the process has ended: its children have another parent by then."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _children_of(pid: int, thread: int) -> list[int]:
    """The children of a thread. Reads to the end of the file, of which the kernel returns a page at a time."""
    descriptor = os.open(f"/proc/{pid}/task/{thread}/children", os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while more := os.read(descriptor, 1 << 16):
            text += more
    finally:
        os.close(descriptor)
    return [int(child) for child in text.split()]


def _children_or_none(pid: int, thread: int) -> list[int]:
    """The children of a thread. Empty if it has ended: another thread of its process, or an ancestor, has them."""
    try:
        return _children_of(pid, thread)
    except OSError:
        return []


def state_of(pid: int, thread: int) -> tuple[str, int]:
    """The letter of a thread's state, and its tracer. A process name cannot forge them: its line breaks are escaped."""
    descriptor = os.open(f"/proc/{pid}/task/{thread}/status", os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(descriptor, 1024)
    finally:
        os.close(descriptor)
    state, tracer = text.index(b"\nState:\t") + 8, text.index(b"\nTracerPid:\t") + 12
    return chr(text[state]), int(text[tracer : text.index(b"\n", tracer)])
