"""Marks cases of fixed sizes that the judge may also run with other memory layouts (strides and offsets)."""

from __future__ import annotations

import msgspec

from torchstone.operator_categories import is_of
from torchstone.schema import Case, forward_operator


def mark_other_layouts(case: Case) -> Case:
    """The case, marked if it has no variants of other sizes: scales, offsets or given values fix its sizes.

    Backward operators are not marked: they rely on the layouts that the forward pass makes, and with others torch reads
    wrong memory. Nor are operators about memory itself, such as ``as_strided``.
    """
    operator = forward_operator(case.operator)
    if case.jitter or is_of(operator, "is_about_memory") or is_of(operator, "is_backward"):
        return case
    return msgspec.structs.replace(case, layouts=True)
