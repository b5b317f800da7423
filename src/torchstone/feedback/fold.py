"""From the records of one kernel to what its author is told."""

from __future__ import annotations

from collections.abc import Iterable

from torchstone.errors import UsageError
from torchstone.feedback.info import FeedbackInfo
from torchstone.schema import Agrees, Cheated, Profile, Record, SourceFiles


def feedback_of(
    records: Iterable[Record], *, source: SourceFiles | None = None, profile: Profile | None = None
) -> FeedbackInfo:
    """The feedback of one kernel. ``source`` gives the text of lines that messages name."""
    known = sorted(records, key=lambda record: (record.case.operator, record.case.label, record.job_key))
    if not known:
        raise UsageError("there is no record: no case of the suite was judged. Choose an operator that the suite has.")
    right = sum(isinstance(record.verdict, Agrees) for record in known)
    return FeedbackInfo(
        operator=known[0].implementation.operator,
        right=right == len(known),
        cases=len(known),
        right_cases=right,
        rejected=any(isinstance(record.verdict, Cheated) for record in known),
    )
