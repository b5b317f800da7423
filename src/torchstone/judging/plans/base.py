"""What an input plan is: a kind of values that some checked calls get, and what may be held against a kernel there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import ClassVar

import torch

from torchstone import operators, schema
from torchstone.calls.drawing import DrawnCall
from torchstone.calls.evaluation import ResultPosition
from torchstone.judging.plans.facts import CaseFacts
from torchstone.judging.plans.forward_part import forward_call
from torchstone.judging.plans.plan_randomness import PlanRng


class When(Enum):
    """Which calls of a job meet a plan that applies to its case."""

    EVERY_CALL = auto()
    """The stated case and every variant, beside the budget."""
    EVERY_VARIANT = auto()
    """Every variant; the stated case in turn."""
    EVERY_CASE = auto()
    """The stated case, beside the budget: few cases have it, and variants seldom meet it. Variants in turn."""
    FIRST = auto()
    """The stated case, and variants of several blocks. Small variants in turn."""
    LARGE = auto()
    """Large stated cases and models: the path for large arguments is often one of its own. Others in turn."""
    IN_TURN = auto()
    """A few of these for each case."""
    ON_REQUEST = auto()
    """The stated case, if the run asks for it."""
    RANDOM_RESULTS = auto()
    """Cases whose results are drawn, which meet no other plan."""


class Positions(Enum):
    """How a plan applies where results tell positions (``sort``, ``argmax``): equal values are ambiguous there."""

    DISTINCT = auto()
    """The plan writes no value twice there. Records name it ``<name> once``."""
    EXCLUDED = auto()
    """The plan is not for such results."""
    REQUIRED = auto()
    """The plan is for such results only."""
    IRRELEVANT = auto()
    """The plan is the same for all results."""


@dataclass(frozen=True)
class Policy:
    """For which cases a plan is, apart from the values that it needs there."""

    when: When = When.IN_TURN
    positions: Positions = Positions.DISTINCT
    gradients: bool = False
    """Whether it is for the arguments of an operator that is differentiated. Autograd defines nothing at NaN."""
    models: bool = False
    """Whether it is for models that problems define."""
    factorizations: bool = False
    """Whether it is for operators that work as LAPACK does."""
    whole_call: bool = False
    """Of a gradient, whether it is handed the cotangents, too."""
    may_be_refused: bool = False
    """Whether operators may refuse its values. On a device that may end the process, so the host is asked first."""
    keeps_digits: bool = False
    """Whether every call is compared in full, within a bound that float64's own noise does not widen."""
    thorough_only: bool = False
    """Whether it finds no wrong kernel alone and costs more than 1 % of a quick check (``benchmarks/plans.py``)."""
    strict_non_finite: bool = False
    """Whether NaN and infinities are what is asked about, so that one does not stand for the other."""


class Plan:
    """One kind of planted values. A plan is a function of the case, the call's seed and its recorded name."""

    name: ClassVar[str] = ""
    """In records. It stays, so that old records can be replayed."""
    phrase: ClassVar[str] = ""
    """What the inputs of a call were like, for people who read why their kernel failed."""
    policy: ClassVar[Policy] = Policy()
    makes_own_call: ClassVar[bool] = False
    """Whether it is not planted but a call of its own, of a case with other fills."""

    def __init__(self, *, distinct: bool = False) -> None:
        """``distinct``: the form that writes no value twice."""
        self.distinct = distinct
        self.recorded_name = f"{self.name} once" if distinct else self.name

    def __repr__(self) -> str:
        return f"<plan {self.recorded_name}>"

    def applies(self, facts: CaseFacts) -> bool:
        """Whether there is something to plant into this case. The policy is checked before."""
        raise NotImplementedError

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        """Write the plan's values to the call's own storages."""
        raise NotImplementedError

    def excuses(self, call: DrawnCall, place: ResultPosition, native: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
        """Elements of one result that are not held against a candidate, besides those that no plan holds against it."""
        return torch.zeros_like(native, dtype=torch.bool)

    def excuses_numbers(self, call: DrawnCall) -> bool:
        """Whether :meth:`excuses` may excuse a finite result where torch's own is finite."""
        return False

    def leaves_open(self, call: DrawnCall, native: Mapping[ResultPosition, torch.Tensor]) -> bool:
        """Whether no difference in this call counts against a candidate."""
        return False

    def when(self, facts: CaseFacts) -> When:
        """Which calls meet it."""
        return self.policy.when

    def survives(self, facts: CaseFacts) -> bool:
        """Whether a process on a device survives its values: a value that is no index may end it."""
        return True

    def needs_trial(self, call: DrawnCall, on_host: bool) -> bool:
        """Whether the host is asked first if it takes the call. ``on_host``: the operator itself runs there."""
        return self.policy.may_be_refused and not on_host

    def same_as(self, call: DrawnCall) -> list[torch.Tensor] | None:
        """Storages that must give the same results as the planted ones; None: no promise is to be checked."""
        return None

    def among_timed(self, facts: CaseFacts, on_host: bool) -> bool:
        """Whether it may be planted into blocks like timed ones, where nobody asks the host first."""
        return on_host or not self.policy.may_be_refused

    def plant(self, call: DrawnCall) -> DrawnCall:
        """The call with the plan's values in it, written to its own storages."""
        target = call if self.policy.whole_call else forward_call(call)
        self.write(target, PlanRng(target, self.recorded_name, distinct=self.distinct))
        return replace(call, planted=self.recorded_name)


def is_pointwise(case: schema.Case) -> bool:
    """Whether each element of the results depends on one element of each argument."""
    return operators.traits(case.operator).pointwise
