"""IS IT RIGHT? Inputs, references and agreement. Trusted side: the judge calls this, and no candidate ever sees it."""

from torchstone.judging.agreement import Agreement, Mismatch, compare, compare_many
from torchstone.judging.expected import Expected, ExpectedOutput, ExpectedTensor
from torchstone.judging.inputs import DrawnCall, DrawnTensor, draw_call, draw_calls
from torchstone.judging.reference import Reference, ReferenceFailure

__all__ = [
    "Agreement",
    "DrawnCall",
    "DrawnTensor",
    "Expected",
    "ExpectedOutput",
    "ExpectedTensor",
    "Mismatch",
    "Reference",
    "ReferenceFailure",
    "compare",
    "compare_many",
    "draw_call",
    "draw_calls",
]
