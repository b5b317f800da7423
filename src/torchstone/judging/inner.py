"""The operator inside a gradient's case: what plans ask of an operator is asked of it, and they write to its arguments.

A gradient takes what the operator takes, and before it how much each result counts. Gradients are linear in that, and
an honest kernel decides nothing there (:mod:`torchstone.judging.counting`). Of any other case, the case itself.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from torchstone import operators, schema
from torchstone.gradients import ASKING
from torchstone.judging.inputs import DrawnCall


def inner_case(case: schema.Case) -> schema.Case:
    """The forward pass alone, with the arguments that it has in a gradient's case."""
    if not schema.is_gradient(case.operator):
        return case
    kwargs = {name: argument for name, argument in case.kwargs.items() if name != ASKING}
    operator = schema.forward_operator(case.operator)
    return msgspec.structs.replace(case, operator=operator, args=case.args[1:], kwargs=kwargs)


def inner_call(call: DrawnCall) -> DrawnCall:
    """The same of a call: its tensors are those of the whole call, not copies."""
    return replace(call, case=inner_case(call.case), tensors=call.tensors[cotangents(call.case) :])


def cotangents(case: schema.Case) -> int:
    """How many of the first tensors say how much results count."""
    return operators.tensor_count(case.args[0]) if schema.is_gradient(case.operator) else 0
