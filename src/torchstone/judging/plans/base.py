"""Base class of input plans (special values written into test inputs): what a plan writes, and what it excuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import ClassVar

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall
from torchstone.calls.reference_calls import ResultPosition
from torchstone.judging.plans.case_facts import CaseFacts
from torchstone.judging.plans.forward_part import forward_call
from torchstone.judging.plans.plan_randomness import PlanRng


class When(Enum):
    """Which calls of a job (one kernel on one case) get a plan that applies to its case.

    The stated case is the case as the suite gives it; a variant is the same operator with other sizes, memory or
    scalars. "In turn": the plans rotate, a few for each case or variant. "Beside the budget": the plan does not count
    against the budget of plans.
    """

    EVERY_CALL = auto()
    """The stated case and every variant, beside the budget."""
    EVERY_VARIANT = auto()
    """Every variant; the stated case in turn."""
    EVERY_CASE = auto()
    """The stated case, beside the budget: the plan applies to few cases. Variants in turn."""
    FIRST = auto()
    """The stated case, and variants of several blocks. Small variants in turn."""
    LARGE = auto()
    """Large stated cases and models: kernels often have a separate path for large arguments. Others in turn."""
    IN_TURN = auto()
    """A few of these plans for each case and variant, in rotation."""
    ON_REQUEST = auto()
    """The stated case, if the run asks for it."""
    RANDOM_RESULTS = auto()
    """Cases with random results, which get no other plan."""


class Positions(Enum):
    """How a plan applies where results are positions (``sort``, ``argmax``): equal values are ambiguous there."""

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
    """Which cases may get a plan. :meth:`Plan.applies` checks the tensors that it needs."""

    when: When = When.IN_TURN
    positions: Positions = Positions.DISTINCT
    gradients: bool = False
    """Whether cases of gradients get it. Autograd does not define gradients at NaN."""
    models: bool = False
    """Whether models get it (a KernelBench problem's ``Model`` as one operator)."""
    factorizations: bool = False
    """Whether matrix factorizations and solvers (LAPACK) get it."""
    whole_call: bool = False
    """For a gradient: whether :meth:`Plan.write` also gets the cotangents, not only the operator's arguments."""
    may_be_refused: bool = False
    """Whether operators may refuse its values. On a GPU that may end the process, so the CPU tries the call first."""
    keeps_digits: bool = False
    """Whether every call is compared in full, within a bound that float64's own noise does not widen."""
    thorough_only: bool = False
    """Whether only effort `thorough` uses it: it finds no wrong kernel that nothing else finds, and costs more than 1 %
    of a quick check (``benchmarks/plans.py``)."""
    strict_non_finite: bool = False
    """Whether NaN and infinity count as different where torch's result is compared with its decomposition."""


class Plan:
    """An input plan: one kind of special values that are written into drawn inputs.

    The case, the call's seed and the plan's recorded name determine what it writes.
    """

    name: ClassVar[str] = ""
    """Name in records. It never changes, so that old records can be replayed."""
    phrase: ClassVar[str] = ""
    """Description of the inputs, for the message of a mismatch."""
    policy: ClassVar[Policy] = Policy()
    makes_own_call: ClassVar[bool] = False
    """Whether it writes nothing into a drawn call, but draws a call of its own from other recipes."""

    def __init__(self, *, distinct: bool = False) -> None:
        """``distinct``: whether to write no value twice."""
        self.distinct = distinct
        self.recorded_name = f"{self.name} once" if distinct else self.name

    def __repr__(self) -> str:
        return f"<plan {self.recorded_name}>"

    def applies(self, facts: CaseFacts) -> bool:
        """Whether the plan has something to write into inputs of this case. The caller has checked the policy."""
        raise NotImplementedError

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        """Write the plan's values to the call's own storages."""
        raise NotImplementedError

    def excuses(self, call: DrawnCall, place: ResultPosition, native: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
        """Mask of one result in a call with this plan's values: True where the kernel's value may differ from torch's.

        ``native`` is torch's own result, ``got`` the kernel's. Elements that are excused whatever the plan need not be
        in the mask.
        """
        return torch.zeros_like(native, dtype=torch.bool)

    def excuses_numbers(self, call: DrawnCall) -> bool:
        """Whether :meth:`excuses` may excuse a finite result where torch's own is finite."""
        return False

    def accepts_any_result(self, call: DrawnCall, native: Mapping[ResultPosition, torch.Tensor]) -> bool:
        """Whether no difference in this call counts against a candidate."""
        return False

    def when(self, facts: CaseFacts) -> When:
        """Which calls get the plan."""
        return self.policy.when

    def is_safe_on_gpu(self, facts: CaseFacts) -> bool:
        """Whether the plan is safe on a GPU, where an index out of range may end the process."""
        return True

    def needs_trial(self, call: DrawnCall, on_host: bool) -> bool:
        """Whether the CPU must accept the call before a GPU gets it. ``on_host``: it runs on the CPU anyway."""
        return self.policy.may_be_refused and not on_host

    def equivalent_storages(self, call: DrawnCall) -> list[torch.Tensor] | None:
        """Storages with which torch must give the same results as with the planted ones; None: no such check."""
        return None

    def allowed_in_timed_blocks(self, facts: CaseFacts, on_host: bool) -> bool:
        """Whether checked blocks that look like timed ones may get the plan: there the CPU does not try calls first."""
        return on_host or not self.policy.may_be_refused

    def plant(self, call: DrawnCall) -> DrawnCall:
        """Write the plan's values into the call's own storages; return the call, marked with the plan's name."""
        target = call if self.policy.whole_call else forward_call(call)
        self.write(target, PlanRng(target, self.recorded_name, distinct=self.distinct))
        return replace(call, planted=self.recorded_name)


def is_pointwise(case: schema.Case) -> bool:
    """Whether each element of the results depends on one element of each argument."""
    return operators.traits(case.operator).pointwise
