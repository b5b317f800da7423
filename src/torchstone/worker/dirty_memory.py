"""Fills a worker's free memory with garbage: a kernel that expects zeros there is then wrong at once.

A fresh process has zeros everywhere, and a kernel that never cleared its accumulator would be right in every short
trial. What is left behind here lies in lists of free memory, where a kernel's own requests find it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from torchstone import operators
from torchstone.protocol.tensor_places import MOST_KEPT, Output

_SOIL = -3.0517578125e13
_BYTES_OF_EACH_SIZE = 1 << 20
_SIZES = (4, 16, 64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 22)
"""In elements: from what the allocator keeps in lists by size to what it takes from the end of its heap."""
_SMALL_ELEMENTS = 4096
_ITEM_BYTES = 4
_MOST_READY_BYTES, _MOST_BESIDE_BYTES = 256 << 20, 64 << 20
"""In all, and beyond what the calls need anyway: a candidate's memory is limited."""
_SPARE = 4
"""Results more than there are, since not every gap fits."""


def soil_heap() -> None:
    """In the zygote, for all its forks."""
    for elements in _SIZES:
        pieces = [torch.full((elements,), _SOIL) for _ in range(max(1, _BYTES_OF_EACH_SIZE // (8 * elements)))]
        del pieces


def soil_for(outputs: Sequence[Output], device: torch.device) -> None:
    """In a worker, in the sizes that results will have. Small ones only: larger ones come from memory that the zygote
    has soiled, or that earlier results were in.
    """
    sizes = (0, 16, 32, 48) * 8 if device.type == "cpu" else (0, 0)  # a device's allocator knows few
    for output in outputs:
        elements = math.prod(output.shape or ())
        if output.dtype is not None and 0 < elements <= _SMALL_ELEMENTS:
            pieces = [torch.full((elements + more,), _SOIL, device=device) for more in sizes]
            del pieces


def have_ready(outputs: Sequence[Output], calls: int) -> None:
    """On the host, memory for the results of so many calls that are timed, and of those that are kept.

    Otherwise the system provides it page by page, while the clock runs, whenever more results exist than before. That
    takes longer than small kernels do, and an older process would have more such memory than a new one. What is freed
    here stays with the process.
    """
    new = [
        (output.shape or (), operators.torch_dtype(output.dtype))
        for output in outputs
        if output.dtype is not None and output.argument is None
    ]
    size = sum(math.prod(shape) * dtype.itemsize for shape, dtype in new)
    if size >= _ITEM_BYTES:
        beside = min(MOST_KEPT + _SPARE, _MOST_BESIDE_BYTES // size)
        count = min(calls + beside, _MOST_READY_BYTES // size)
        pieces = [torch.full((size // _ITEM_BYTES,), _SOIL) for _ in range(count)]
        del pieces
