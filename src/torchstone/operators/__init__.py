"""What torch tells about an operator: its overload, what it changes, what it returns, how arguments are built.

Shared by the judge, the process that computes references, and by the worker, the process that calls candidates: both
must build the same call from the same recipes. Imports torch, so nothing that runs before a device is needed imports
this.
"""

from torchstone.operators.overloads import (
    Contract,
    accumulates,
    argument_names,
    build_arguments,
    contiguous_strides,
    contract_of,
    flatten_outputs,
    is_view,
    named_arguments,
    named_tensors,
    resolve,
    runs_on_the_host,
    storage_extent,
    tensor_count,
    torch_dtype,
    view_of,
)
from torchstone.operators.traits import Traits, traits

__all__ = [
    "Contract",
    "Traits",
    "accumulates",
    "argument_names",
    "build_arguments",
    "contiguous_strides",
    "contract_of",
    "flatten_outputs",
    "is_view",
    "named_arguments",
    "named_tensors",
    "resolve",
    "runs_on_the_host",
    "storage_extent",
    "tensor_count",
    "torch_dtype",
    "traits",
    "view_of",
]
