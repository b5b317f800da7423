"""Sets how much a kernel is checked at effort `quick`, `normal` and `thorough`: calls, hidden variants, input plans.

A hidden variant is the same operator with other sizes, memory or scalars. An input plan writes special values into test
inputs. ``benchmarks/plans.py`` measures what each part costs and finds. A part that finds no wrong kernel alone and
costs more than 1 % of a quick check is for `thorough` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchstone.schema import Effort


@dataclass(frozen=True)
class CheckBudget:
    """How much one job (one kernel on one case) is checked."""

    checked_calls: int
    """Checked calls, besides the first call and one more, which are compared with float64."""
    variants: int
    """Hidden variants of a case."""
    variants_of_proven: int
    """Hidden variants of a case once the kernel has passed ``proven_by`` variants: its other cases also vary sizes."""
    proven_by: int
    """Passed variants after which a kernel gets fewer. If the case has a tensor of several elements, only variants with
    such a tensor count."""
    large_variants: int
    """Variants of the stated size, for a case that is larger than its other variants."""
    plans_of_small: int
    """Plans of a small stated case with variants, besides those that every case gets."""
    plans_of_large: tuple[tuple[int, int], ...]
    """(most elements, plans) for larger stated cases: how many plans in turn a case of up to this size gets."""
    plans_of_largest: int
    """Plans in turn of cases larger than these."""
    plans_of_variant: tuple[int, ...]
    """How many plans in turn a small variant gets: one of these numbers, at random."""
    plans_of_large_variant: int
    """Plans in turn of a large variant, one of several blocks."""
    unchecked_calls_ns: int
    """Time for calls whose results are not compared, during which earlier results must not change. For untimed
    cases."""
    all_checks: bool = False
    """Whether to use also plans and checks of random draws that find no wrong kernel alone and cost much."""


BUDGETS: Mapping[Effort, CheckBudget] = {
    "quick": CheckBudget(
        checked_calls=2,
        variants=3,
        variants_of_proven=1,
        proven_by=12,
        large_variants=1,
        plans_of_small=3,
        plans_of_large=((1 << 18, 1),),
        plans_of_largest=1,
        plans_of_variant=(0, 0, 1),
        plans_of_large_variant=0,
        unchecked_calls_ns=15_000_000,
    ),
    "normal": CheckBudget(
        checked_calls=3,
        variants=6,
        variants_of_proven=6,
        proven_by=32,
        large_variants=2,
        plans_of_small=6,
        plans_of_large=((1 << 18, 3), (1 << 20, 2)),
        plans_of_largest=1,
        plans_of_variant=(0, 1),
        plans_of_large_variant=1,
        unchecked_calls_ns=60_000_000,
    ),
    "thorough": CheckBudget(
        checked_calls=16,
        variants=11,
        variants_of_proven=11,
        proven_by=32,
        large_variants=2,
        plans_of_small=6,
        plans_of_large=((1 << 18, 3), (1 << 20, 2)),
        plans_of_largest=1,
        plans_of_variant=(0, 1),
        plans_of_large_variant=1,
        unchecked_calls_ns=60_000_000,
        all_checks=True,
    ),
}
