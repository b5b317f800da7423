"""Records calls of a kernel as one CUDA graph, so that they run without a launch in between.

Runs in the worker, beside the candidate, and is therefore not trusted. The judge fills the arguments before every play,
takes the time and verifies every result.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch


class PreparedCall(NamedTuple):
    """A function with the arguments of one call."""

    function: Callable[..., Any]
    args: list[Any]
    kwargs: Mapping[str, Any]


class Recording:
    """Calls recorded as a CUDA graph. A replay uses the values that their arguments hold at that time."""

    def __init__(
        self,
        calls: Sequence[PreparedCall],
        device: torch.device,
        link: Callable[[int, Any], None] | None,
        called_before: bool,
    ) -> None:
        """``link`` is called after every call but the last, with the call's number and result.

        Unless ``called_before``, the candidate is first called once on the stream of the recording.
        """
        if device.type != "cuda":
            raise NotImplementedError(f"a {device.type} device records no calls")
        self._device = device
        self._graph = torch.cuda.CUDAGraph()
        # The events are part of the graph: the time between them does not include its launch.
        self._began, self._ended = (
            torch.cuda.Event(enable_timing=True, external=True)  # type: ignore[no-untyped-call]
            for _ in range(2)
        )
        self.kept: list[Any] = []
        """Tensors whose memory holds the results. Kept as long as the graph may be replayed."""
        self._link = link
        self.results = self._record(calls, called_before)

    def _record(self, calls: Sequence[PreparedCall], called_before: bool) -> list[Any]:
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(self._device)
        function, args, kwargs = calls[0]
        with torch.cuda.stream(stream), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of an empty graph
            if not called_before:
                function(*args, **kwargs)  # libraries set themselves up for a stream when they first see it
            torch.cuda.synchronize(self._device)
            self._graph.capture_begin(capture_error_mode="thread_local")
            try:
                self._began.record()
                results = self._call_all(calls)
                self._ended.record()
            except BaseException:
                with contextlib.suppress(RuntimeError):
                    self._graph.capture_end()
                raise
            self._graph.capture_end()
        torch.cuda.synchronize(self._device)
        return results

    def _call_all(self, calls: Sequence[PreparedCall]) -> list[Any]:
        """Make the calls, with ``link`` between them, and return their results."""
        results = []
        for index, (function, args, kwargs) in enumerate(calls):
            results.append(function(*args, **kwargs))
            if self._link is not None and index + 1 < len(calls):
                self._link(index, results[-1])
        return results

    def play_ns(self) -> int:
        """Replay the calls, and return the time in nanoseconds that the device measured for them."""
        self._graph.replay()
        torch.cuda.synchronize(self._device)
        return max(0, int(self._began.elapsed_time(self._ended) * 1e6))
