"""Fills a worker's free memory with garbage, so that a kernel that expects zeros there returns wrong results at once.

The memory of a fresh process is zero. A kernel that never clears its accumulator would be right in every short trial.
The garbage is written to memory that is then freed. The allocator keeps it in its free lists, and a kernel's own
allocations get it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from torchstone import operators
from torchstone.protocol.tensor_places import MOST_KEPT, Output

_GARBAGE_VALUE = -3.0517578125e13
_BYTES_PER_SIZE = 512 << 10
"""Garbage that :func:`fill_heap_with_garbage` writes per size: as many pieces as fill these bytes, or one piece if it
is larger."""
_SIZES_ELEMENTS = (4, 16, 64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 22)
"""From sizes that the allocator keeps in lists by size to sizes that it takes from the end of its heap."""
_SMALL_ELEMENTS = 4096
"""Most elements of a result for which :func:`fill_for_results` writes garbage."""
_ITEM_BYTES = 4
"""Bytes of an element of the garbage, which is float32."""
_MOST_TOTAL_BYTES, _MOST_SPARE_BYTES = 256 << 20, 64 << 20
"""Most memory of :func:`reserve_result_memory` in all, and beyond the results of the calls: a candidate's memory is
limited."""
_SPARE_RESULTS = 4
"""Results for which memory is made ready beyond those that exist, since a result does not fit into every gap."""


def fill_heap_with_garbage() -> None:
    """Fill free memory with garbage in the zygote, for all workers that it forks."""
    for elements in _SIZES_ELEMENTS:
        count = max(1, _BYTES_PER_SIZE // (_ITEM_BYTES * elements))
        pieces = [torch.full((elements,), _GARBAGE_VALUE) for _ in range(count)]
        del pieces


def fill_for_results(outputs: Sequence[Output], device: torch.device) -> None:
    """Fill free memory with garbage in a worker, in the sizes of its results.

    Small sizes only: a larger result gets memory that the zygote filled, or that earlier results were in.
    """
    extra_elements = (0, 16, 32, 48) * 8 if device.type == "cpu" else (0, 0)  # a device's allocator has few sizes
    for output in outputs:
        elements = math.prod(output.shape or ())
        if output.dtype is not None and 0 < elements <= _SMALL_ELEMENTS:
            pieces = [torch.full((elements + more,), _GARBAGE_VALUE, device=device) for more in extra_elements]
            del pieces


def reserve_result_memory(outputs: Sequence[Output], calls: int) -> None:
    """Allocate and free host memory for the results of this many timed calls, and for kept results.

    Otherwise the system provides that memory page by page while calls are timed, whenever more results exist than
    before. That takes longer than small kernels do, and an older process would have more such memory than a new one.
    Freed memory stays with the process.
    """
    new = [
        (output.shape or (), operators.torch_dtype(output.dtype))
        for output in outputs
        if output.dtype is not None and output.argument is None
    ]
    size_bytes = sum(math.prod(shape) * dtype.itemsize for shape, dtype in new)
    if size_bytes >= _ITEM_BYTES:
        spare = min(MOST_KEPT + _SPARE_RESULTS, _MOST_SPARE_BYTES // size_bytes)
        count = min(calls + spare, _MOST_TOTAL_BYTES // size_bytes)
        pieces = [torch.full((size_bytes // _ITEM_BYTES,), _GARBAGE_VALUE) for _ in range(count)]
        del pieces
