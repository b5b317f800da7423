"""Feedback: what the author of a kernel is told about its records. A fold of its own, not a print of reports.

It never contains a seed, a value of a hidden variant beyond its kind, or how the judge watches.
"""

from torchstone.feedback.fold import feedback_of
from torchstone.feedback.info import (
    ArgumentShape,
    CasePerformance,
    CompileError,
    FailedCase,
    FeedbackInfo,
    ProfiledWork,
    WrongElements,
)
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
