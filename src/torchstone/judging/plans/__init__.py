"""Input plans: special values (0, NaN, masks, ties) written into the inputs of some checked calls, never timed ones.

Drawn values rarely reach the special cases of an operator. No drawn number equals a bound of ``hardtanh``, is half an
integer, overflows ``exp`` or is NaN, and no drawn index is negative. A kernel that is wrong there would agree. So a
plan writes such values into random elements of a drawn call; the other elements keep their drawn values. Some plans
change whole tensors.

One class for each plan, in modules by what they vary; :mod:`~torchstone.judging.plans.catalogue` lists them, and
:mod:`~torchstone.judging.planting.schedule` chooses among them.
"""

from torchstone.judging.plans.base import Plan, Policy, Positions, When
from torchstone.judging.plans.case_facts import CaseFacts
from torchstone.judging.plans.catalogue import PLANS, Catalogue, inputs_of, plan_of, plant

__all__ = ["PLANS", "CaseFacts", "Catalogue", "Plan", "Policy", "Positions", "When", "inputs_of", "plan_of", "plant"]
