"""Is the result right? Inputs, references and comparison. Trusted: the judge calls this, no candidate sees it."""

from torchstone.calls.drawing import DrawnCall, DrawnTensor, batched_view, draw_call, draw_calls
from torchstone.calls.evaluation import ReferenceFailure, ResultPosition
from torchstone.calls.resizing import strides_like
from torchstone.judging.arithmetic_device import desk_of
from torchstone.judging.budget import BUDGETS
from torchstone.judging.call_series import Series, UncapturableError
from torchstone.judging.calls_needed import calls_to_tell
from torchstone.judging.compare.agreement import compare, compare_many
from torchstone.judging.outcome import Agreement, Mismatch, worst_of
from torchstone.judging.plans import Plan, inputs_of, plant
from torchstone.judging.planting.planted_calls import Planting, plans_among_timed, plant_some, planted_calls
from torchstone.judging.reference.expected import Expected, ExpectedOutput, ExpectedValues, Reference
from torchstone.judging.self_agreement import (
    agrees_about_nothing,
    agrees_on_plain_memory,
    agrees_with_itself,
    has_the_kinds_of,
    says_it_races,
)
from torchstone.judging.variant_tag import is_hidden
from torchstone.judging.variants.pool import hidden_cases, stated_size_cases, with_other_numbers
from torchstone.judging.work.counting import Work, work_of
from torchstone.judging.work.value_independent import preparable_share

__all__ = [
    "BUDGETS",
    "Agreement",
    "DrawnCall",
    "DrawnTensor",
    "Expected",
    "ExpectedOutput",
    "ExpectedValues",
    "Mismatch",
    "Plan",
    "Planting",
    "Reference",
    "ReferenceFailure",
    "ResultPosition",
    "Series",
    "UncapturableError",
    "Work",
    "agrees_about_nothing",
    "agrees_on_plain_memory",
    "agrees_with_itself",
    "batched_view",
    "calls_to_tell",
    "compare",
    "compare_many",
    "desk_of",
    "draw_call",
    "draw_calls",
    "has_the_kinds_of",
    "hidden_cases",
    "inputs_of",
    "is_hidden",
    "plans_among_timed",
    "plant",
    "plant_some",
    "planted_calls",
    "preparable_share",
    "says_it_races",
    "stated_size_cases",
    "strides_like",
    "with_other_numbers",
    "work_of",
    "worst_of",
]
