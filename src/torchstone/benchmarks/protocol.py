"""The interface of a benchmark: three methods, and a base class with helpers. Importing it imports no torch.

Methods are found by name. A class of another harness is a benchmark too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    import torch

REQUIRED_METHODS = ("setup", "benchmark_fn", "teardown")
"""A class with these three methods is a benchmark."""

FULL_SIZE_GIB = 16
_SCALES = ((FULL_SIZE_GIB, 1.0), (8, 0.5), (4, 0.25))
_SMALLEST_SCALE = 0.1
_GIB = 1 << 30
_NOMINAL_SIZE_SHARE = 0.95
"""Share of a nominal size that counts as that size. A device sold with 16 GB reports a few percent less."""


class SkipBenchmark(Exception):  # noqa: N818 - a public name, and not an error: the benchmark says that it does not apply
    """A benchmark raises this if it cannot run here. The pair is reported as skipped, with the text as reason."""


@runtime_checkable
class Benchmark(Protocol):
    """The methods that every benchmark has. The optional ones are described in docs/harness.md."""

    def setup(self) -> None:
        """Make models and data."""
        ...

    def benchmark_fn(self) -> Any:
        """The work that is timed. May return tensors, or lists of TTFT and TPOT times."""
        ...

    def teardown(self) -> None:
        """Free what setup made."""
        ...


class BaseBenchmark:
    """A benchmark with a device, NVTX ranges, workload scaling and synchronization. Subclasses write `benchmark_fn`."""

    _constructor_arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Remember the arguments: the process that runs the benchmark constructs it again with the same ones."""
        made = super().__new__(cls)
        made._constructor_arguments = (args, kwargs)
        return made

    @property
    def device(self) -> torch.device:
        """The CUDA device if this process sees one, else the CPU."""
        import torch

        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def setup(self) -> None:
        """Nothing to prepare, unless the subclass says otherwise."""

    def benchmark_fn(self) -> Any:
        """The work that is timed: every subclass writes its own."""
        raise NotImplementedError(f"{type(self).__name__} has no benchmark_fn")

    def teardown(self) -> None:
        """Nothing to free, unless the subclass says otherwise."""

    def get_config(self) -> Any:
        """Settings of this benchmark: a `BenchmarkConfig` with only the fields that it wants to set. None: none."""
        return None

    def validate_result(self) -> str | None:
        """A text if the result is wrong. None: it is right, or there is nothing to validate."""
        return None

    @contextlib.contextmanager
    def _nvtx_range(self, name: str) -> Iterator[None]:
        """Mark this part in a profile. Without CUDA it does nothing."""
        import torch

        if not torch.cuda.is_available():
            yield
            return
        with torch.cuda.nvtx.range(name):
            yield

    def _scale_workload_by_memory(self, base_size: int) -> int:
        """The size, scaled by memory of the device (CPU: the machine): 16 GB 100 %, 8 GB 50 %, 4 GB 25 %, less 10 %."""
        return max(1, int(base_size * memory_scale(_memory_bytes())))

    def _synchronize(self) -> None:
        """Wait until the device has finished. On a CPU there is nothing to wait for."""
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()


def memory_scale(memory_bytes: int) -> float:
    """Share of the full workload for a device with this much memory."""
    for gib, share in _SCALES:
        if memory_bytes >= gib * _GIB * _NOMINAL_SIZE_SHARE:
            return share
    return _SMALLEST_SCALE


def _memory_bytes() -> int:
    import torch

    if torch.cuda.is_available():
        return int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
