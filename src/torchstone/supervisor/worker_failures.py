"""Exceptions of the judge, one for every way in which a worker can fail to reply."""

from __future__ import annotations

from torchstone.protocol.replies import Ending


class WorkerEndedError(Exception):
    """The worker's process has ended."""

    def __init__(self, ending: Ending | None) -> None:
        super().__init__(str(ending))
        self.ending = ending
        """The warden's report of the end. None: there was no report, so not only the candidate ended."""


class WorkerTimeoutError(Exception):
    """No reply before the deadline."""


class BadReplyError(Exception):
    """The worker's own code does not send such a reply: the candidate wrote to the pipe."""


class OverLimitError(Exception):
    """The worker and the processes that it started exceed a limit, or cannot be frozen."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
