"""Backend `aten`: PyTorch's own operators as candidates. They should pass every suite: this tests the judge."""

from __future__ import annotations

from torchstone.backends.base import BackendOptions
from torchstone.schema import Implementation, ImportPath


class AtenBackend:
    """PyTorch's own operators, all of them.

    The worker resolves each through the dispatcher.
    """

    def __init__(self, options: BackendOptions) -> None:
        del options  # nothing about ATen depends on the request

    def implementation(self, operator: str) -> Implementation | None:
        return Implementation("aten", operator, ImportPath("torch", f"ops.{operator}"), "aten", "torch")
