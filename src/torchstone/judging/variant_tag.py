"""The tag that marks a case as a hidden variant: the same operator with other sizes, memory or scalars."""

from __future__ import annotations

import msgspec

from torchstone import schema

HIDDEN = "hidden"
"""The tag of a variant."""


def is_hidden(case: schema.Case) -> bool:
    """Whether it is a variant."""
    return HIDDEN in case.tags


def hidden(case: schema.Case) -> schema.Case:
    """Marked as a variant."""
    return msgspec.structs.replace(case, tags=(*case.tags, HIDDEN), timed=False, jitter=False)
