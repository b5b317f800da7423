"""The tag that marks a case as a hidden variant: the same operator with other sizes, memory or scalars."""

from __future__ import annotations

import msgspec

from torchstone import schema

HIDDEN = "hidden"
"""The tag of a variant."""


def is_hidden(case: schema.Case) -> bool:
    """Whether the case is a hidden variant."""
    return HIDDEN in case.tags


def hidden(case: schema.Case) -> schema.Case:
    """The case marked as a hidden variant: not timed, and without variants of its own."""
    return msgspec.structs.replace(case, tags=(*case.tags, HIDDEN), timed=False, jitter=False)
