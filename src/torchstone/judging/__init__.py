"""IS IT RIGHT? Inputs, references and agreement. Trusted side: the judge calls this, and no candidate ever sees it."""

from torchstone.judging.agreement import compare, compare_many
from torchstone.judging.desk import desk_of
from torchstone.judging.evaluation import Place, ReferenceFailure
from torchstone.judging.hidden import hidden_cases, stated_size_cases, with_other_numbers
from torchstone.judging.information import calls_to_tell
from torchstone.judging.inputs import DrawnCall, DrawnTensor, batched_view, draw_call, draw_calls
from torchstone.judging.itself import (
    agrees_about_nothing,
    agrees_on_plain_memory,
    agrees_with_itself,
    has_the_kinds_of,
    says_it_races,
)
from torchstone.judging.jitter import is_hidden, strides_like
from torchstone.judging.outcome import Agreement, Mismatch, worst_of
from torchstone.judging.plans import Plan, inputs_of, plant
from torchstone.judging.plans.planting import Planting, plans_among_timed, plant_some, planted_calls
from torchstone.judging.preparable import preparable_share
from torchstone.judging.reference import Expected, ExpectedOutput, Reference, Values
from torchstone.judging.series import Series, UncapturableError
from torchstone.judging.work import Work, work_of

__all__ = [
    "Agreement",
    "DrawnCall",
    "DrawnTensor",
    "Expected",
    "ExpectedOutput",
    "Mismatch",
    "Place",
    "Plan",
    "Planting",
    "Reference",
    "ReferenceFailure",
    "Series",
    "UncapturableError",
    "Values",
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
