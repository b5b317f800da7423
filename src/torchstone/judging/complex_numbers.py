"""What is planted into complex tensors: zeros, and numbers with a real or an imaginary part alone.

Complex functions divide by the length of a number, ask whether it is real, and compute by exponentials that overflow.
Where they jump, on their cuts, an answer is open (:mod:`torchstone.judging.smoothness`).
"""

from __future__ import annotations

import torch

from torchstone import operators, schema
from torchstone.judging.inputs import DrawnTensor
from torchstone.judging.lots import Lot

_DTYPES = (torch.complex64, torch.complex128)
_ZEROS_IN = 4
"""One number in so many is 0."""
_WHOLE = tuple(sign * k / 2.0 for k in range(1, 9) for sign in (1.0, -1.0))


def is_complex(recipe: schema.Tensor) -> bool:
    """Complex, of any value."""
    return isinstance(recipe.fill, schema.Normal) and operators.torch_dtype(recipe.dtype) in _DTYPES


def complex_numbers(lot: Lot, tensor: DrawnTensor, count: int) -> torch.Tensor:
    """Whole numbers and halves, in one part or in both, and 0."""
    table = torch.tensor(_WHOLE, dtype=torch.float64)
    real, imaginary = (table[lot.below(len(table), count)] for _ in range(2))
    return in_parts(lot, real, imaginary) * (lot.below(_ZEROS_IN, count) > 0)


def in_parts(lot: Lot, real: torch.Tensor, imaginary: torch.Tensor) -> torch.Tensor:
    """The first or the second part alone, or both."""
    which = lot.below(3, len(real))
    return torch.complex(torch.where(which == 1, 0.0, real), torch.where(which == 0, 0.0, imaginary))
