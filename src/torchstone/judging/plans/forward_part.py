"""The forward operator inside a gradient's case: input plans look at its arguments and write to them.

A gradient takes cotangents, and after them what the operator takes. Of any other case, the case itself.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from torchstone import operators, schema
from torchstone.calls.drawing import DrawnCall
from torchstone.gradients import ASKING


def forward_case(case: schema.Case) -> schema.Case:
    """The forward pass alone, with the arguments that it has in a gradient's case."""
    if not schema.is_gradient(case.operator):
        return case
    kwargs = {name: argument for name, argument in case.kwargs.items() if name != ASKING}
    operator = schema.forward_operator(case.operator)
    return msgspec.structs.replace(case, operator=operator, args=case.args[1:], kwargs=kwargs)


def forward_call(call: DrawnCall) -> DrawnCall:
    """The same of a call: its tensors are those of the whole call, not copies."""
    return replace(call, case=forward_case(call.case), tensors=call.tensors[cotangents(call.case) :])


def cotangents(case: schema.Case) -> int:
    """How many of a gradient's first tensors are cotangents."""
    return operators.tensor_count(case.args[0]) if schema.is_gradient(case.operator) else 0
