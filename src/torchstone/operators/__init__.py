"""What torch tells about an operator: its overload, what it changes, what it returns, how arguments are built.

The judge, which computes references, and the worker, which calls candidates, both use it: they must build the same call
from the same recipes. It imports torch, so modules that run before a device is needed must not import it.
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
