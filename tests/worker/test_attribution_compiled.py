"""Watching a call of a compiled function: what it runs is seen, and it stays compiled."""

from __future__ import annotations

import pytest
import torch

from torchstone.worker.attribution import attribute


@pytest.mark.filterwarnings("default")
def test_a_compiled_kernel_that_was_watched_runs_compiled_afterwards() -> None:
    traced = []

    def backend(graph: torch.fx.GraphModule, example: list[torch.Tensor]) -> object:
        traced.append(len(example))
        return graph.forward

    kernel = torch.compile(lambda x: torch.ops.aten.relu.default(x), fullgraph=True, dynamic=False, backend=backend)
    kernel(torch.randn(3))
    seen = attribute(kernel, [torch.randn(3)], {}, with_kernels=False)
    assert seen.operators == {"aten.relu.default": 1}
    kernel(torch.randn(3))
    kernel(torch.randn(4))
    assert traced == [1, 1], "compiled once for each shape, and not again for being watched"
