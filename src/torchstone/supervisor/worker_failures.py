"""Exceptions of the judge, one for every way in which a worker can fail to answer."""

from __future__ import annotations

from torchstone.protocol.replies import Ending


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
