"""Cases whose sizes are fixed, because scales, offsets or given values go with them, may lie otherwise in memory."""

from __future__ import annotations

import msgspec

from torchstone.operator_names import is_of
from torchstone.schema import Case, forward_operator


def may_be_laid_out(case: Case) -> Case:
    """The case, marked so if it has no variants of other sizes.

    Not of a backward pass, whose arguments lie as the forward pass left them: torch reads beside others.
    """
    operator = forward_operator(case.operator)
    if case.jitter or is_of(operator, "is_about_memory") or is_of(operator, "is_backward"):
        return case
    return msgspec.structs.replace(case, layouts=True)
