"""Which verdicts make a run fail: the rule behind the exit code, `--fail-fast` and `--last-failed`."""

from __future__ import annotations

from torchstone.schema import Agrees, Missing, Unsupported, Verdict


def fails(verdict: Verdict, *, missing_too: bool = False) -> bool:
    """Whether a run with this verdict ends with another exit code than 0.

    Missing operators fail on request only. What the reference or the device cannot do says nothing about the kernel.
    """
    match verdict:
        case Agrees():
            return False
        case Unsupported(by=by):
            return by == "candidate"
        case Missing():
            return missing_too
    return True
