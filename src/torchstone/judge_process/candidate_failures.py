"""All ways in which a request to a candidate's worker can fail, and the verdict for each."""

from __future__ import annotations

import signal

from torchstone import schema
from torchstone.judge_process import verdict_wording
from torchstone.judge_process.retained_results import LostResultError
from torchstone.protocol.replies import Failed
from torchstone.supervisor.worker_failures import BadReplyError, OverLimitError, WorkerEndedError, WorkerTimeoutError


class CandidateFailedError(Exception):
    """The candidate raised; the worker reported it."""

    def __init__(self, failure: Failed) -> None:
        super().__init__(failure.message)
        self.failure = failure


FAILURES = (
    WorkerTimeoutError,
    WorkerEndedError,
    BadReplyError,
    OverLimitError,
    CandidateFailedError,
    LostResultError,
)
"""Every exception that means a failure of the candidate in its worker."""


class WorkerLostError(Exception):
    """The candidate's worker ended as if it or its warden had been killed from outside."""


class DeviceLostError(Exception):
    """The candidate's worker could not open the device."""


class VerdictError(Exception):
    """Carries a verdict that is certain before the end of the trial."""

    def __init__(self, verdict: schema.Verdict) -> None:
        self.verdict = verdict


def verdict_for_failure(
    failure: Exception, stage: schema.Stage, limit_seconds: float, used_seconds: float
) -> schema.Verdict:
    """The verdict for one of :data:`FAILURES`. Raises WorkerLostError if the worker was killed from outside."""
    match failure:
        case WorkerTimeoutError():
            return schema.TimedOut(stage, limit_seconds, round(used_seconds, 3))
        case BadReplyError():
            return schema.Cheated(stage, "reply", str(failure))
        case LostResultError():
            message = f"{failure}; expected a new tensor each time"
            return schema.Disagrees(stage, "aliasing", message, wrong=schema.WrongResult(text=message))
        case OverLimitError(kind="processes"):
            return schema.Crashed(stage, "processes", f"stopped: {failure}")
        case OverLimitError():
            return schema.Crashed(stage, "memory", f"stopped: {failure}")
        case CandidateFailedError(failure=reply):
            return verdict_wording.verdict_for_reply(stage, reply)
        case WorkerEndedError(ending=ending):
            if ending is None or ending.signal_number == signal.SIGKILL:
                raise WorkerLostError("the worker was killed from outside") from failure
            return verdict_wording.verdict_for_ending(stage, ending.exit_code, ending.signal_number)
    raise AssertionError(f"no verdict for {failure!r}")
