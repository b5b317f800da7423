"""Builds the messages that ask a model for one attempt: the prompt, and earlier attempts with their feedback."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchstone.prompting import Language
from torchstone.schema.generation import Message

_LONGEST_REPLY_CHARACTERS = 4000
"""Characters of a reply without code that a later message repeats: enough to see what went wrong."""


class Shown(msgspec.Struct, frozen=True):
    """An earlier attempt as it is shown to the model again."""

    number: int
    code: str | None
    """None: the reply contained no code."""
    reply: str
    feedback: str
    right: bool = False


def refining(prompt: str, earlier: Sequence[Shown], language: Language) -> tuple[Message, ...]:
    """A conversation: each earlier attempt is a reply, its feedback the next question."""
    messages = [Message("user", prompt)]
    for attempt in earlier:
        messages.append(Message("assistant", _as_reply(attempt, language)))
        messages.append(Message("user", f"{attempt.feedback.strip()}\n\n{_next_step(attempt)}"))
    return tuple(messages)


def evolving(prompt: str, earlier: Sequence[Shown], language: Language) -> tuple[Message, ...]:
    """One message: the prompt with the best attempts so far."""
    if not earlier:
        return (Message("user", prompt),)
    parts = [prompt.rstrip(), "# Best attempts so far"]
    parts += [f"## Attempt {each.number}\n{_as_reply(each, language)}\n\n{each.feedback.strip()}" for each in earlier]
    parts.append(
        "# Now\nWrite a kernel that is better than each of these: right in every case, then faster. Combine what is "
        "good in them or take another approach. Send the whole file in one code block."
    )
    return (Message("user", "\n\n".join(parts)),)


def _as_reply(attempt: Shown, language: Language) -> str:
    if attempt.code is not None:
        return f"```{language.fence}\n{attempt.code.rstrip()}\n```"
    return attempt.reply.strip()[:_LONGEST_REPLY_CHARACTERS] or "(empty reply)"


def _next_step(attempt: Shown) -> str:
    if attempt.code is None:
        return "Please answer in that form."
    if attempt.right:
        return "It is right. Make it faster, and keep it right. Send the whole file in one code block."
    return "Correct the kernel. Send the whole file in one code block."
