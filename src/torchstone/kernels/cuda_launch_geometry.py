"""Computes how CUDA kernels divide tensors among threads (loads, rows, blocks), and launches elementwise kernels."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from torchstone.kernels.compile_and_launch_cuda import Argument, Constant, CudaKernel, device_of, multiprocessors

LOAD_BYTES = 16
"""Bytes of the widest load of a thread."""
ELEMENTWISE_THREADS = 256
BYTES_OF_THREAD = 32
"""Bytes of each tensor per thread of an elementwise kernel, two loads. Small tensors have one load per thread."""
LEAST_LANES = 8
"""Least threads per row: eight loads of 16 bytes are one cache line."""
LEAST_THREADS = 128
"""Threads of a block that holds several rows."""
WARP = 32
ADD_THREADS = 512
"""Threads of the one block that adds the sums of all blocks."""


class RowPlan(NamedTuple):
    """How threads hold rows; the names are those of the macros in `cuda_source.ROWS`."""

    VEC: int
    """Elements per load; divides the number of columns."""
    LANES: int
    """Threads per row, a power of two."""
    PACKS: int
    """Loads per thread and row."""
    THREADS: int
    """Threads per block. A block holds several rows if a row takes a warp or less, else one row."""

    @property
    def rows_of_block(self) -> int:
        """Rows that a block holds at once."""
        return self.THREADS // self.LANES


def elements_per_load(*tensors: torch.Tensor | None, steps: tuple[int, ...] = ()) -> int:
    """The most elements, a power of two, that one load may take from each of the tensors.

    `steps` are the distances in elements at which loads begin, such as the row stride: each must be a multiple.
    """
    given = [tensor for tensor in tensors if tensor is not None]
    elements = LOAD_BYTES // max(tensor.element_size() for tensor in given)
    while elements > 1 and (
        any(step % elements for step in steps)
        or any(tensor.data_ptr() % (elements * tensor.element_size()) for tensor in given)
    ):
        elements //= 2
    return elements


@functools.lru_cache(maxsize=4096)
def plan_rows(
    columns: int, vec: int, elements_per_thread: int, most_threads: int, least_lanes: int = LEAST_LANES
) -> RowPlan | None:
    """Plan for rows that are held in registers. None: a row has too many columns for that."""
    packs = divide_up(columns, vec)
    most_packs = max(1, elements_per_thread // vec)
    lanes = max(power_of_2(divide_up(packs, most_packs)), min(least_lanes, power_of_2(packs)))
    if lanes > most_threads:
        return None
    return RowPlan(vec, lanes, divide_up(packs, lanes), lanes if lanes > WARP else LEAST_THREADS)


def launch_elementwise(
    kernel: CudaKernel, tensors: tuple[torch.Tensor, ...], *scalars: Argument, **constants: Constant
) -> None:
    """Launch a kernel on tensors of equal size and memory order. Its parameters are tensors, count, scalars."""
    count = tensors[-1].numel()
    if not count:
        return
    vec = elements_per_load(*tensors)
    loads = loads_for(count, vec, tensors[-1])
    blocks = divide_up(count, vec * loads * ELEMENTWISE_THREADS)
    kernel.launch(
        tensors[-1], blocks, ELEMENTWISE_THREADS, (*tensors, count, *scalars),
        VEC=vec, LOADS=loads, THREADS=ELEMENTWISE_THREADS, **constants,
    )  # fmt: skip


def loads_for(count: int, vec: int, tensor: torch.Tensor) -> int:
    """Loads per thread: one if several would leave less than four blocks per multiprocessor."""
    elements = BYTES_OF_THREAD // tensor.element_size()
    blocks = count // (elements * ELEMENTWISE_THREADS)
    return elements // vec if blocks >= 4 * multiprocessors(device_of(tensor)) else 1


def divide_up(count: int, by: int) -> int:
    """The quotient, rounded up."""
    return -(-count // by)


def power_of_2(count: int) -> int:
    """The least power of 2 that is at least `count`."""
    return 1 << max(0, count - 1).bit_length()
