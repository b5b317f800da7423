"""Runs every adapter of the liger backend beside ATen, in Triton's interpreter; prints the operators that agree.

A process of its own: the interpreter is chosen when Triton is imported.
"""

from __future__ import annotations

from typing import Any

import interpreted  # noqa: F401 - first: it changes what kernels import
import torch

from torchstone import operators
from torchstone.backends import BackendOptions
from torchstone.backends.liger import LigerBackend
from torchstone.schema import SourceFiles


def calls() -> dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]]:
    draw = torch.randn
    x, weight, bias = draw(2, 3, 4, 8), draw(4, 8), draw(4, 8)
    _, mean, rstd = torch.native_layer_norm(x, [4, 8], weight, bias, 1e-5)
    backward = (draw(2, 3, 4, 8), x, [4, 8], mean, rstd, weight, bias)
    logs, shares = torch.log_softmax(draw(3, 4, 7), -1), torch.softmax(draw(3, 4, 7), -1)
    return {
        "aten._fused_rms_norm.default": [((x, [8], draw(8), 1e-5), {}), ((x, [4, 8], None, 1e-5), {})],
        "aten._softmax.default": [((draw(3, 5, 7), -1, False), {}), ((draw(9, 7).t(), 1, False), {})],
        "aten._softmax_backward_data.default": [((draw(3, 4, 7), shares, 2, torch.float32), {})],
        "aten.kl_div.default": [
            ((logs, shares), {}),
            ((logs, shares, 0), {}),
            ((logs, shares, 2), {}),
            ((logs, shares.log(), 1), {"log_target": True}),
        ],
        "aten.native_group_norm.default": [((draw(2, 6, 5, 4), draw(6), draw(6), 2, 6, 20, 3, 1e-5), {})],
        "aten.native_layer_norm.default": [
            ((x, [4, 8], weight, bias, 1e-5), {}),
            ((x.transpose(0, 1), [4, 8], weight, bias, 1e-5), {}),
        ],
        "aten.native_layer_norm_backward.default": [
            ((*backward, [True, True, True]), {}),
            ((*backward, [True, False, False]), {}),
        ],
        "aten.rms_norm.default": [((x, [8], draw(8), 1e-5), {}), ((x, [4, 8]), {})],
    }


def refusals() -> list[tuple[str, tuple[Any, ...]]]:
    x = torch.randn(3, 4)
    return [
        ("aten._softmax.default", (x, 0, False)),
        ("aten._softmax.default", (x.double(), 1, False)),
        ("aten.native_layer_norm.default", (x, [4], None, None, 1e-5)),
    ]


def main() -> None:
    torch.manual_seed(0)
    backend = LigerBackend(BackendOptions(device_type="cuda"))
    for operator, made in calls().items():
        kernel, reference = loaded(backend, operator), operators.resolve(operator)
        for args, kwargs in made:
            torch.testing.assert_close(leaves(kernel(*args, **kwargs)), leaves(reference(*args, **kwargs)))
        print(operator)
    for operator, args in refusals():
        try:
            loaded(backend, operator)(*args)
        except NotImplementedError:
            continue
        raise AssertionError(f"{operator} was not refused")


def loaded(backend: LigerBackend, operator: str) -> Any:
    found = backend.implementation(operator)
    assert found is not None
    assert isinstance(found.origin, SourceFiles)
    space: dict[str, Any] = {}
    exec(compile(found.origin.files[0].text, operator, "exec"), space)
    return space[found.origin.entry]


def leaves(result: Any) -> list[torch.Tensor]:
    """Gradients that were not asked for are no result."""
    found = result if isinstance(result, (tuple, list)) else [result]
    return [leaf for leaf in found if leaf is not None]


main()
