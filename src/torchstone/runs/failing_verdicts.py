"""Decides which verdicts on kernels make a run fail: for the exit code, `--fail-fast` and `--last-failed`."""

from __future__ import annotations

from torchstone.schema import Agrees, Missing, Unsupported, Verdict


def fails(verdict: Verdict, *, missing_too: bool = False) -> bool:
    """Whether a run with this verdict ends with an exit code other than 0.

    Missing kernels fail only with ``missing_too``. Cases that the reference or the device does not support never fail.
    """
    match verdict:
        case Agrees():
            return False
        case Unsupported(by=by):
            return by == "candidate"
        case Missing():
            return missing_too
    return True
