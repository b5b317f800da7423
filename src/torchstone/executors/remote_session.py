"""Session for judges on other machines: sends jobs, and retries those that the infrastructure lost, within a limit.

What a candidate does is in the record that comes back: a crash is a verdict and is never tried again. What keeps an
answer from coming (a node is lost, an actor dies, a container fails) is a fault. The job goes back to the front of the
queue, for whichever judge is free next. After three faults it ends `unjudged`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Protocol

import msgspec

from torchstone import errors
from torchstone.executors.base import ExecutorOptions
from torchstone.executors.node_judge import Judged, packed, unpacked
from torchstone.executors.queue import JobQueue, Waiting
from torchstone.executors.session_loop import LASTING, MOST_UNJUDGED_IN_A_ROW, SessionLoop, error_named
from torchstone.schema import Record

_LOOK_SECONDS = 1.0
"""How often judges that come and go are looked for while nothing is heard."""
_PATIENCE_SECONDS = 300.0
"""Without any judge for this long, while jobs wait, the session gives up: a new node takes minutes to start."""
_ANSWER_SECONDS = 600.0
"""Beside the deadlines of a job: a node ends judges that are stuck by itself, and then answers."""


class RemoteJudge(Protocol):
    """Takes jobs as JSON and answers with JSON, see ``node_judge.py``."""

    name: str
    """For messages: which node, which device."""
    width: int
    """Messages that it may have in hand."""

    def judge(self, jobs: str) -> Future[str]:
        """Send a message. A fault of the infrastructure is the exception of the future."""
        ...


class Fleet(Protocol):
    """The judges of an executor, which come and go."""

    most_jobs: int
    """Jobs of one candidate in one message."""

    def judges(self, wanted: int) -> Sequence[RemoteJudge]:
        """Those that are ready, when so many jobs wait or are in hand. Quick: it is asked all the time."""
        ...

    def lost(self, judge: RemoteJudge, why: str) -> None:
        """This one did not answer: end it, and start another when there is need."""
        ...

    def obstacle(self) -> str:
        """Why no judge is ready, in a few words."""
        ...

    def close(self) -> None:
        """End all of them."""
        ...


class _Message:
    """Jobs that one judge has in hand."""

    def __init__(self, judge: RemoteJudge, jobs: Sequence[Waiting]) -> None:
        self.judge, self.jobs = judge, jobs
        seconds = sum(_ANSWER_SECONDS + 4 * sum(msgspec.structs.astuple(job.deadlines)) for job, _ in jobs)
        self.overdue_at = time.monotonic() + seconds


class RemoteSession(SessionLoop):
    """The loop over messages to judges that come and go."""

    def __init__(self, fleet: Fleet, options: ExecutorOptions) -> None:
        super().__init__(options, JobQueue(heaviest_first=True))
        self._fleet = fleet
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        """What other threads have for the loop."""
        self._messages: dict[int, _Message] = {}
        """In hand, by the identity of the message: one that was given up may still be answered, and is not heard."""
        self._known: dict[str, tuple[str, set[str]]] = {}
        """By judge: the candidate that it had last, and the cases that it has had."""
        self._unjudged_in_a_row: set[str] = set()
        self._without_since: float | None = None
        self._idle_since = time.monotonic()

    def close(self) -> None:
        self._closed = True
        self._wake()
        with self._turn:
            self._fleet.close()

    def _wake(self) -> None:
        self._events.put(lambda: None)

    def _has_in_hand(self) -> bool:
        return bool(self._messages)

    # ---- the loop

    def _step(self) -> None:
        """One turn: hand out jobs, then wait for news."""
        self._feed()
        self._give_up_overdue()
        try:
            event = self._events.get(timeout=_LOOK_SECONDS)
        except Empty:
            return
        event()
        while not self._events.empty():
            self._events.get()()
        self._feed()  # before the answers are given: judges do not wait while these are kept

    def _feed(self) -> None:
        """Jobs to every judge with room. No more are sent ahead: what waits here can still be withdrawn."""
        wanted = len(self._queue) + sum(len(message.jobs) for message in self._messages.values())
        now = time.monotonic()
        self._idle_since = now if wanted else self._idle_since
        judges = self._fleet.judges(wanted if wanted or now - self._idle_since < self._options.idle_seconds else -1)
        self._require(judges, wanted)
        busy: dict[int, int] = {}
        for message in self._messages.values():
            busy[id(message.judge)] = busy.get(id(message.judge), 0) + 1
        for judge in judges:
            for _ in range(judge.width - busy.get(id(judge), 0)):
                jobs = self._next_for(judge)
                if not jobs:
                    return
                self._send(judge, jobs)

    def _require(self, judges: Sequence[RemoteJudge], wanted: int) -> None:
        if judges or not wanted:
            self._without_since = None
            return
        now = time.monotonic()
        self._without_since = self._without_since or now
        if now - self._without_since > _PATIENCE_SECONDS:
            raise errors.InfrastructureError(
                f"no judge was ready for {_PATIENCE_SECONDS:g} s: {self._fleet.obstacle()}."
            )

    def _next_for(self, judge: RemoteJudge) -> list[Waiting]:
        """Jobs of one candidate; alone what was lost before, since it may be the cause."""
        last, cases = self._known.get(judge.name, (None, set()))
        elsewhere = {job.implementation.key for message in self._messages.values() for job, _ in message.jobs}
        jobs: list[Waiting] = []
        while len(jobs) < self._fleet.most_jobs:
            found = self._queue.take(last, elsewhere, cases)
            if found is None:
                break
            other = jobs and (found[0].implementation.key != last or found[1])
            if other:
                self._queue.put_back(*found)
                break
            jobs.append(found)
            last = found[0].implementation.key
            if found[1]:
                break
        return jobs

    def _send(self, judge: RemoteJudge, jobs: Sequence[Waiting]) -> None:
        message = _Message(judge, jobs)
        self._messages[id(message)] = message
        _, cases = self._known.get(judge.name, ("", set[str]()))
        self._known[judge.name] = jobs[-1][0].implementation.key, cases | {job.case.key for job, _ in jobs}
        future = judge.judge(packed(job for job, _ in jobs))
        future.add_done_callback(lambda done: self._events.put(lambda: self._hear(message, done)))

    # ---- answers and faults

    def _hear(self, message: _Message, done: Future[str]) -> None:
        if self._messages.pop(id(message), None) is None:
            return
        error = done.exception()
        if error is not None:
            if isinstance(error, errors.UsageError | errors.DeviceUnavailableError):
                raise error
            self._lost(message, f"{type(error).__name__}: {error}")
            return
        try:
            answer = unpacked(done.result())
        except (msgspec.MsgspecError, ValueError) as problem:
            self._lost(message, f"an answer that does not decode: {problem}")
            return
        if isinstance(answer, Judged):
            self._take(message, answer.records)
        else:
            told = error_named(answer.error, answer.message)
            if isinstance(told, LASTING):
                raise told
            self._lost(message, answer.message)

    def _take(self, message: _Message, records: Sequence[Record]) -> None:
        """The records of the message's jobs, and of no others."""
        found: dict[str, list[Record]] = {}
        for record in records:  # jobs that differ only in how long they may take have the same key
            found.setdefault(record.job_key, []).append(record)
        missing: list[Waiting] = []
        for job, lost in message.jobs:
            if not found.get(job.key):
                missing.append((job, lost))
                continue
            record = found[job.key].pop(0)  # the records come in the order of the jobs
            self._unjudged_in_a_row.clear()
            self._answer(job, msgspec.structs.replace(record, attempts=record.attempts + lost), {})
        if missing:
            self._lost(_Message(message.judge, missing), "an answer without these jobs")

    def _lost(self, message: _Message, why: str) -> None:
        words = f"{message.judge.name}: {' '.join(why.split())[:500]}"
        self._known.pop(message.judge.name, None)
        self._fleet.lost(message.judge, words)
        for job, lost in reversed(message.jobs):
            faults = f"lost {lost + 1} times by the infrastructure; the last time on {words}"
            if self._put_back_or_give_up(job, lost + 1, faults, {}):
                self._unjudged_in_a_row.add(job.implementation.key)
        if len(self._unjudged_in_a_row) >= MOST_UNJUDGED_IN_A_ROW and not self._messages:
            raise errors.InfrastructureError(f"one job after another is lost; the last one: {words}")

    def _give_up_overdue(self) -> None:
        now = time.monotonic()
        for message in [one for one in self._messages.values() if one.overdue_at < now]:
            del self._messages[id(message)]
            self._lost(message, "no answer in time")
