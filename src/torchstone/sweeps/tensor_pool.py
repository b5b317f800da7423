"""Random tensors of a shape, made once and shared by all operations that are measured on it."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence

import torch

_ALIGNMENT_BYTES = 512
"""Alignment of each copy, as in torch's caching allocator. Kernels that load several elements at once need it."""

Fill = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


class TensorPool:
    """Copies of random tensors by role. All copies are slices of one block, which is filled by one call."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self.device = device
        self._seed = seed
        self._shape: tuple[int, ...] = ()
        self._blocks: dict[tuple[str, torch.dtype], torch.Tensor] = {}

    def keep_only(self, shape: Sequence[int]) -> None:
        """Drop the tensors if they were made for another shape."""
        if tuple(shape) != self._shape:
            self._blocks.clear()
            self._shape = tuple(shape)

    def clear(self) -> None:
        """Drop all tensors."""
        self._blocks.clear()

    def normal(self, role: str, shape: Sequence[int], dtype: torch.dtype, copies: int) -> list[torch.Tensor]:
        """Copies with normally distributed values."""
        return self._copies(role, shape, dtype, copies, lambda block, generator: block.normal_(generator=generator))

    def integers(self, role: str, shape: Sequence[int], below: int, copies: int) -> list[torch.Tensor]:
        """Uniform integers from 0 to `below - 1`."""
        return self._copies(
            role, shape, torch.int64, copies, lambda block, generator: block.random_(0, below, generator=generator)
        )

    def _copies(
        self, role: str, shape: Sequence[int], dtype: torch.dtype, copies: int, fill: Fill
    ) -> list[torch.Tensor]:
        elements = math.prod(shape)
        unit = _ALIGNMENT_BYTES // dtype.itemsize
        stride = max(unit, -(-elements // unit) * unit)
        key = (role, dtype)
        block = self._blocks.get(key)
        if block is None or block.numel() < copies * stride:
            self._blocks.pop(key, None)
            del block
            block = torch.empty(copies * stride, dtype=dtype, device=self.device)
            # Each role has its own seed. With equal values a loss would be 0 and many gradients nearly 0.
            generator = torch.Generator(self.device).manual_seed(self._seed + zlib.crc32(role.encode()))
            self._blocks[key] = block = fill(block, generator)
        return [block[place * stride : place * stride + elements].view(tuple(shape)) for place in range(copies)]
