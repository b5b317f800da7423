"""Every overload that can be replaced, all at once, by kernels that call the original: nothing changes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from torchstone.installing import dispatcher_registrations, original
from torchstone.installing.loading import Loaded

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
SAMPLES = 2


def overloads() -> Iterator[str]:
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        operator = f"aten.{base}.{overload or 'default'}"
        if (
            namespace == "aten"
            and dispatcher_registrations.exists(operator)
            and not dispatcher_registrations.installable(operator, "cpu")
        ):
            yield operator


def compute(operation: Any, sample: Any) -> list[torch.Tensor | None]:
    """Outputs, and gradients of what has some."""
    torch.manual_seed(1)
    leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    own = [x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x for x in leaves]
    args, kwargs = pytree.tree_unflatten(own, spec)
    outputs = [x for x in pytree.tree_leaves(operation.op(*args, **kwargs)) if isinstance(x, torch.Tensor)]
    sources = [x for x in own if isinstance(x, torch.Tensor) and x.requires_grad]
    roots = [x.abs().sum() if x.is_complex() else x.sum() for x in outputs if x.requires_grad]
    gradients = torch.autograd.grad(roots, sources, allow_unused=True) if roots and sources else ()
    return [*(x.detach() for x in outputs), *gradients]


def plainly() -> Iterator[tuple[Any, Any, list[torch.Tensor | None]]]:
    """The samples of torch's own tests that can be computed here, with what they give."""
    invocations = pytest.importorskip("torch.testing._internal.common_methods_invocations")
    for operation in invocations.op_db:
        try:
            samples = operation.sample_inputs("cpu", torch.float32, requires_grad=operation.supports_autograd)
            for sample in itertools.islice(samples, SAMPLES):
                yield operation, sample, compute(operation, sample)
        except (RuntimeError, ValueError, TypeError, NotImplementedError, ImportError, AssertionError):
            continue  # for other dtypes or devices, or torch cannot do it here


def same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    a, b = (x.to_dense() if x.layout != torch.strided else x for x in (one, other))
    wide = torch.complex128
    return torch.allclose(a.to(wide), b.to(wide), rtol=1e-4, atol=1e-4, equal_nan=True)


def test_every_operator_replaced_by_itself_is_itself_with_its_gradient() -> None:
    samples = list(plainly())
    kernels = [
        dispatcher_registrations.Kernel(name, name, Loaded(original(name), ""), fallback=False) for name in overloads()
    ]
    results: list[Any] = []
    try:
        for kernel in kernels:
            dispatcher_registrations.install(kernel, "cpu")
        for operation, sample, _ in samples:
            try:
                results.append(compute(operation, sample))
            except Exception as error:  # noqa: BLE001 - all are told together
                results.append(error)
    finally:
        for kernel in kernels:
            dispatcher_registrations.uninstall(kernel, "cpu")
    wrong = []
    for (operation, _, expected), found in zip(samples, results, strict=True):
        if isinstance(found, Exception):
            wrong.append(f"{operation.name}: {found}")
        elif operation.name not in UNINITIALISED and (
            len(found) != len(expected) or not all(map(same, found, expected))
        ):
            wrong.append(f"{operation.name}: another result")
    assert wrong == []
    assert len(samples) > 1000
    assert sum(kernel.calls > 0 for kernel in kernels) > 500
