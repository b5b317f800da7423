"""Feedback as text for a prompt."""

from __future__ import annotations

from torchstone.feedback.info import FeedbackInfo


def text_of(info: FeedbackInfo, max_tokens: int | None = None) -> str:
    """The most important first."""
    return f"{info.operator}: {info.right_cases} of {info.cases} cases are right."
