"""Feedback: what the author of a kernel, a model or a person, may see of its results.

It never contains a seed, or how the judge detects cheating. A hidden variant is a call with drawn
sizes, layout or scalars near a stated case. Of its values only the kind is named, such as `NaN` or `positive`.
"""

from torchstone.feedback.feedback_fields import (
    ArgumentShape,
    CasePerformance,
    CompileError,
    FailedCase,
    FeedbackInfo,
    ProfiledWork,
    WrongElements,
)
from torchstone.feedback.from_records import feedback_of
from torchstone.feedback.performance import profiled_work
from torchstone.feedback.text import profile_text

__all__ = [
    "ArgumentShape",
    "CasePerformance",
    "CompileError",
    "FailedCase",
    "FeedbackInfo",
    "ProfiledWork",
    "WrongElements",
    "feedback_of",
    "profile_text",
    "profiled_work",
]
