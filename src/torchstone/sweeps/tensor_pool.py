"""Random tensors of a shape, made once and shared by all operations that are measured on it."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence

import torch

_ALIGNMENT_BYTES = 512
"""As the caching allocator aligns: kernels that load several elements at once need it."""

Fill = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


class TensorPool:
    """Copies of tensors by role, each a slice of one block, so that a thousand copies take one call to fill."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self.device = device
        self._seed = seed
        self._shape: tuple[int, ...] = ()
        self._blocks: dict[tuple[str, torch.dtype], torch.Tensor] = {}

    def keep_only(self, shape: Sequence[int]) -> None:
        """Forget the tensors of another point of the grid."""
        if tuple(shape) != self._shape:
            self._blocks.clear()
            self._shape = tuple(shape)

    def clear(self) -> None:
        """Forget everything."""
        self._blocks.clear()

    def normal(self, role: str, shape: Sequence[int], dtype: torch.dtype, copies: int) -> list[torch.Tensor]:
        """Normally distributed values."""
        return self._copies(role, shape, dtype, copies, lambda block, generator: block.normal_(generator=generator))

    def integers(self, role: str, shape: Sequence[int], below: int, copies: int) -> list[torch.Tensor]:
        """Integers from 0 to `below`, which is left out."""
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
            # Of its own for each role: with equal values a loss would be 0 and many a gradient next to nothing.
            generator = torch.Generator(self.device).manual_seed(self._seed + zlib.crc32(role.encode()))
            self._blocks[key] = block = fill(block, generator)
        return [block[place * stride : place * stride + elements].view(tuple(shape)) for place in range(copies)]
