"""Session for judges on other machines: sends jobs, and retries those that the infrastructure lost, within a limit.

Failures of a candidate are in the record: a crash is a verdict and is never tried again. A failure of the
infrastructure, after which no answer comes, is a *fault*: a node is lost, an actor dies, a container fails. The job
goes back to the front of the queue, for the next free judge. After three faults it ends `unjudged`.
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

_POLL_SECONDS = 1.0
"""Longest time between two checks for new or lost judges, when no answer comes."""
_PATIENCE_SECONDS = 300.0
"""If jobs wait and no judge is ready for this long, the session raises an error. A new node takes minutes to start."""
_ANSWER_SECONDS = 600.0
"""Time for an answer in addition to the deadlines of a job: a node itself ends judges that are stuck, and answers."""


class RemoteJudge(Protocol):
    """Takes jobs as JSON and answers with JSON, see ``node_judge.py``."""

    name: str
    """Node and device, for texts that the user sees."""
    width: int
    """Most messages that it may have at a time."""

    def judge(self, jobs: str) -> Future[str]:
        """Send a message with jobs. A fault of the infrastructure becomes the exception of the future."""
        ...


class Fleet(Protocol):
    """The judges of an executor. Judges may join and be lost at any time."""

    most_jobs: int
    """Most jobs of one candidate in one message."""

    def judges(self, wanted: int) -> Sequence[RemoteJudge]:
        """The judges that are ready. ``wanted``: number of waiting and running jobs; -1: none for a long time.

        Is called in every turn of the loop, so it must be fast.
        """
        ...

    def lost(self, judge: RemoteJudge, why: str) -> None:
        """End a judge that did not answer, and start another when it is needed."""
        ...

    def obstacle(self) -> str:
        """Why no judge is ready, in a few words."""
        ...

    def close(self) -> None:
        """End all judges."""
        ...


class _Message:
    """Jobs that were sent to one judge, and the time by which it must answer."""

    def __init__(self, judge: RemoteJudge, jobs: Sequence[Waiting]) -> None:
        self.judge, self.jobs = judge, jobs
        seconds = sum(_ANSWER_SECONDS + 4 * sum(msgspec.structs.astuple(job.deadlines)) for job, _ in jobs)
        self.overdue_at = time.monotonic() + seconds


class RemoteSession(SessionLoop):
    """A session whose loop sends messages to the judges of a fleet. See `Session`."""

    def __init__(self, fleet: Fleet, options: ExecutorOptions) -> None:
        super().__init__(options, JobQueue(heaviest_first=True))
        self._fleet = fleet
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        """Functions that other threads pass to the loop, which calls them."""
        self._messages: dict[int, _Message] = {}
        """Unanswered messages, by their ``id``. A later answer to a message that was given up is ignored."""
        self._known: dict[str, tuple[str, set[str]]] = {}
        """By judge: the candidate of its last job, and the cases of all its jobs."""
        self._unjudged_in_a_row: set[str] = set()
        self._no_judge_since: float | None = None
        self._idle_since = time.monotonic()

    def close(self) -> None:
        self._closed = True
        self._wake()
        with self._loop_lock:
            self._fleet.close()

    def _wake(self) -> None:
        self._events.put(lambda: None)

    def _has_in_hand(self) -> bool:
        return bool(self._messages)

    # ---- the loop

    def _step(self) -> None:
        """Make one turn: send jobs to judges, then wait for answers."""
        self._feed()
        self._give_up_overdue()
        try:
            event = self._events.get(timeout=_POLL_SECONDS)
        except Empty:
            return
        event()
        while not self._events.empty():
            self._events.get()()
        self._feed()  # at once, so that judges need not wait while the caller uses the answers

    def _feed(self) -> None:
        """Send jobs to every judge that may take some. Other jobs wait here, where they can still be withdrawn."""
        wanted = len(self._queue) + sum(len(message.jobs) for message in self._messages.values())
        now = time.monotonic()
        self._idle_since = now if wanted else self._idle_since
        judges = self._fleet.judges(wanted if wanted or now - self._idle_since < self._options.idle_seconds else -1)
        self._require_judges(judges, wanted)
        busy: dict[int, int] = {}
        for message in self._messages.values():
            busy[id(message.judge)] = busy.get(id(message.judge), 0) + 1
        for judge in judges:
            for _ in range(judge.width - busy.get(id(judge), 0)):
                jobs = self._next_for(judge)
                if not jobs:
                    return
                self._send(judge, jobs)

    def _require_judges(self, judges: Sequence[RemoteJudge], wanted: int) -> None:
        """Raise InfrastructureError if jobs wait and no judge was ready for long."""
        if judges or not wanted:
            self._no_judge_since = None
            return
        now = time.monotonic()
        self._no_judge_since = self._no_judge_since or now
        if now - self._no_judge_since > _PATIENCE_SECONDS:
            raise errors.InfrastructureError(
                f"no judge was ready for {_PATIENCE_SECONDS:g} s: {self._fleet.obstacle()}."
            )

    def _next_for(self, judge: RemoteJudge) -> list[Waiting]:
        """Take jobs of one candidate for a judge. A job that was lost before goes alone, since it may be the cause."""
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
        future.add_done_callback(lambda done: self._events.put(lambda: self._handle_answer(message, done)))

    # ---- answers and faults

    def _handle_answer(self, message: _Message, done: Future[str]) -> None:
        if self._messages.pop(id(message), None) is None:
            return
        error = done.exception()
        if error is not None:
            if isinstance(error, errors.UsageError | errors.DeviceUnavailableError):
                raise error
            self._handle_loss(message, f"{type(error).__name__}: {error}")
            return
        try:
            answer = unpacked(done.result())
        except (msgspec.MsgspecError, ValueError) as problem:
            self._handle_loss(message, f"an answer that does not decode: {problem}")
            return
        if isinstance(answer, Judged):
            self._take(message, answer.records)
        else:
            refusal = error_named(answer.error, answer.message)
            if isinstance(refusal, LASTING):
                raise refusal
            self._handle_loss(message, answer.message)

    def _take(self, message: _Message, records: Sequence[Record]) -> None:
        """Answer the message's jobs with their records. Jobs without one are lost. Other jobs' records are ignored."""
        found: dict[str, list[Record]] = {}
        for record in records:  # jobs that differ only in their deadlines have the same key
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
            self._handle_loss(_Message(message.judge, missing), "an answer without these jobs")

    def _handle_loss(self, message: _Message, why: str) -> None:
        """Handle a message that got no usable answer: tell the fleet that its judge is lost, and requeue the jobs.

        The fleet is the set of the executor's judges; it ends the lost one. Each job goes back to the front of the
        session's queue. A job that too many judges were lost on ends `unjudged` instead.
        """
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
        """Treat messages without an answer in time as lost."""
        now = time.monotonic()
        for message in [one for one in self._messages.values() if one.overdue_at < now]:
            del self._messages[id(message)]
            self._handle_loss(message, "no answer in time")
