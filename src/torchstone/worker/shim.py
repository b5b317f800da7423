"""The shim: a call that does nothing and returns ready results. Its time is the overhead of calling."""

from __future__ import annotations

from typing import Any

import torch

from torchstone.worker.result_addresses import OutputDtypes


class Shim:
    """Ready results for the calls of one case; where an operator returns an argument, the argument itself."""

    def __init__(self, outputs: OutputDtypes, arguments: list[list[torch.Tensor]], device: torch.device) -> None:
        """``arguments``: for each call, its tensors."""
        self._outputs, self._arguments, self._device = outputs, arguments, device
        self._results: list[Any] | None = None
        self._next = 0
        self._speck = torch.zeros(1, device=device)

    def begin(self) -> None:
        """Start again with the result of the first call."""
        if self._results is None:
            self._results = [self._result(tensors) for tensors in self._arguments]
        self._next = 0

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The ready result of the next call."""
        if self._results is None:
            self.begin()
        assert self._results is not None
        self._next = (self._next + 1) % len(self._results)
        return self._results[self._next - 1]

    def call_on_device(self, *args: Any, **kwargs: Any) -> Any:
        """As :meth:`call`. The first call also launches a one-element kernel, since a graph has at least one kernel."""
        if self._next == 0:
            self._speck.zero_()
        return self.call(*args, **kwargs)

    def _result(self, tensors: list[torch.Tensor]) -> Any:
        """A result of zeros with the operator's structure; returned arguments are the call's own tensors."""
        leaves = [
            tensors[output.argument]
            if output.argument is not None
            else 0
            if dtype is None
            else torch.zeros(output.shape or (), dtype=dtype, device=self._device)
            for output, dtype in self._outputs
        ]
        return leaves[0] if len(leaves) == 1 else tuple(leaves)
