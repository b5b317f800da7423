"""Decides whether a kernel's result is right: special inputs, references, comparison. The worker never imports it.

The worker is the untrusted process that runs the kernel.
"""

from torchstone.calls.draw_arguments import DrawnCall, DrawnTensor, batched_view, draw_call, draw_calls
from torchstone.calls.reference_calls import ReferenceFailure, ResultPosition
from torchstone.calls.resizing import strides_like
from torchstone.judging.arithmetic_device import arithmetic_device_of
from torchstone.judging.call_batch import Series, UncapturableError
from torchstone.judging.calls_against_guessing import calls_needed_against_guessing
from torchstone.judging.compare.agreement import compare, compare_many
from torchstone.judging.comparison_result import Agreement, Mismatch, worst_of
from torchstone.judging.effort_budget import BUDGETS
from torchstone.judging.plans import Plan, inputs_of, plant
from torchstone.judging.planting.planted_calls import Planting, plans_among_timed, plant_some, planted_calls
from torchstone.judging.reference.case_reference import Reference
from torchstone.judging.reference.expected import Expected, ExpectedOutput, ExpectedValues
from torchstone.judging.reference_repeatability import (
    agrees_on_contiguous_memory,
    agrees_on_empty_arguments,
    agrees_with_itself,
    declares_nondeterminism,
    has_result_dtypes_of,
)
from torchstone.judging.variant_tag import is_hidden
from torchstone.judging.variants.pool import hidden_cases, stated_size_cases, with_other_numbers
from torchstone.judging.work.flops_and_bytes import Work, work_of
from torchstone.judging.work.value_independent_traffic import preparable_share

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
    "agrees_on_contiguous_memory",
    "agrees_on_empty_arguments",
    "agrees_with_itself",
    "arithmetic_device_of",
    "batched_view",
    "calls_needed_against_guessing",
    "compare",
    "compare_many",
    "declares_nondeterminism",
    "draw_call",
    "draw_calls",
    "has_result_dtypes_of",
    "hidden_cases",
    "inputs_of",
    "is_hidden",
    "plans_among_timed",
    "plant",
    "plant_some",
    "planted_calls",
    "preparable_share",
    "stated_size_cases",
    "strides_like",
    "with_other_numbers",
    "work_of",
    "worst_of",
]
