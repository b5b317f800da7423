"""All input plans (special values written into test inputs).

To add one, write its class and put it at the end of :data:`PLANS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from torchstone.calls.draw_arguments import DrawnCall
from torchstone.errors import UsageError
from torchstone.judging.plans.all_true_or_false import NoneTrue, Whole
from torchstone.judging.plans.attention_dropout_one_key import OneKey
from torchstone.judging.plans.base import Plan, Positions, When
from torchstone.judging.plans.case_facts import CaseFacts
from torchstone.judging.plans.constant_rows import ConstantRows
from torchstone.judging.plans.cotangents import LargeCotangents, ZeroCotangents
from torchstone.judging.plans.duplicate_indices import DuplicateIndices
from torchstone.judging.plans.equal_tensors import Copied, NearlyCopied
from torchstone.judging.plans.extreme_positions import ExtremesAtEnds
from torchstone.judging.plans.large_integers import LargeIntegers
from torchstone.judging.plans.magnitudes import Hundreds, Lowered, Magnitudes, Shifted, TinyValues
from torchstone.judging.plans.masks import MaskedScores, PaddingMasks
from torchstone.judging.plans.nan_and_infinity import CarriedInfinities, Infinities, MissingValues, Nan
from torchstone.judging.plans.nonfinite_pointwise_inputs import NonFiniteInputs
from torchstone.judging.plans.one_magnitude import OneMagnitude
from torchstone.judging.plans.one_sided_values import Above, Below
from torchstone.judging.plans.range_ends_and_beyond import AtRangeEnds, OutsideRange
from torchstone.judging.plans.repeated_values import RepeatedInfinities, RepeatedValues
from torchstone.judging.plans.simple_values import SimpleNumbers
from torchstone.judging.plans.special_indices import MarkedIndices, NegativeIndices


class Catalogue:
    """Plans by their recorded names, and which of them apply to a case."""

    def __init__(self, plans: Iterable[type[Plan]]) -> None:
        """The order of ``plans`` determines which ones a seed chooses, so a new plan goes to the end."""
        self._plans = [_Forms(plan) for plan in plans]
        self._named = {
            plan.recorded_name: plan for forms in self._plans for plan in forms.all() if not plan.makes_own_call
        }

    def __iter__(self) -> Iterator[Plan]:
        """Every plan that a record can name."""
        return iter(self._named.values())

    def named(self, recorded_name: str) -> Plan:
        """The plan that a record names."""
        found = self._named.get(recorded_name)
        if found is None:
            raise UsageError(f"there is no plan '{recorded_name}' for the values of a call.")
        return found

    def applying(self, facts: CaseFacts) -> list[Plan]:
        """The plans that have something to plant into a case, except those on request and for random results."""
        return self._applying(facts, lambda when: when not in (When.ON_REQUEST, When.RANDOM_RESULTS))

    def on_request(self, facts: CaseFacts) -> list[Plan]:
        """The plans that apply only if a run requests them (``--non-finite``)."""
        return self._applying(facts, lambda when: when is When.ON_REQUEST)

    def for_random_results(self, facts: CaseFacts) -> list[Plan]:
        """The plans for cases whose results are random."""
        return self._applying(facts, lambda when: when is When.RANDOM_RESULTS)

    def _applying(self, facts: CaseFacts, wanted: Callable[[When], bool]) -> list[Plan]:
        forms = (each.form_for(facts) for each in self._plans if wanted(each.plan.policy.when))
        return [plan for plan in forms if plan is not None and _allows(plan, facts) and plan.applies(facts)]


class _Forms:
    """One plan, and the form of it that writes no value twice."""

    def __init__(self, plan: type[Plan]) -> None:
        self.plan = plan()
        self._distinct = plan(distinct=True) if plan.policy.positions is Positions.DISTINCT else None

    def all(self) -> list[Plan]:
        return [self.plan] if self._distinct is None else [self.plan, self._distinct]

    def form_for(self, facts: CaseFacts) -> Plan | None:
        positions, tells = self.plan.policy.positions, facts.tells_positions
        if positions is Positions.DISTINCT and tells:
            return self._distinct
        excluded = (positions is Positions.EXCLUDED and tells) or (positions is Positions.REQUIRED and not tells)
        return None if excluded else self.plan


def _allows(plan: Plan, facts: CaseFacts) -> bool:
    policy = plan.policy
    return (
        (policy.gradients or not facts.gradient)
        and (policy.models or not facts.model)
        and (policy.factorizations or not facts.traits.factorizes)
    )


PLANS = Catalogue((
    ZeroCotangents,
    LargeCotangents,
    SimpleNumbers,
    Hundreds,
    Magnitudes,
    Nan,
    Infinities,
    MaskedScores,
    MissingValues,
    Shifted,
    Lowered,
    ConstantRows,
    AtRangeEnds,
    OutsideRange,
    PaddingMasks,
    Copied,
    NearlyCopied,
    OneMagnitude,
    Whole,
    NoneTrue,
    LargeIntegers,
    ExtremesAtEnds,
    NegativeIndices,
    MarkedIndices,
    Below,
    Above,
    RepeatedValues,
    RepeatedInfinities,
    DuplicateIndices,
    CarriedInfinities,
    TinyValues,
    NonFiniteInputs,
    OneKey,
))  # fmt: skip


def plan_of(call: DrawnCall) -> Plan | None:
    """The plan whose values a call has; None: nothing was planted."""
    return PLANS.named(call.planted) if call.planted else None


def plant(call: DrawnCall, recorded_name: str) -> DrawnCall:
    """The call with the values of the plan that a record names."""
    return PLANS.named(recorded_name).plant(call)


def inputs_of(recorded_name: str) -> str:
    """The plan's phrase for messages, ``inputs included values up to ±100``; empty without planted values."""
    return PLANS.named(recorded_name).phrase if recorded_name else ""
