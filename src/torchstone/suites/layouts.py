"""Cases whose sizes are fixed, because scales, offsets or given values go with them, may lie otherwise in memory."""

from __future__ import annotations

import msgspec

from torchstone.schema import Case, forward_operator

_ABOUT_MEMORY = ("as_strided", "set_", "resize", "_resize", "sparse_", "_sparse")
"""How the names of operators begin whose results hang on where elements lie."""


def may_be_laid_out(case: Case) -> Case:
    """The case, marked so if it has no variants of other sizes.

    Not of a backward pass, whose arguments lie as the forward pass left them: torch reads beside others.
    """
    name = forward_operator(case.operator).split(".")[1]
    if case.jitter or name.startswith(_ABOUT_MEMORY) or "backward" in name:
        return case
    return msgspec.structs.replace(case, layouts=True)
