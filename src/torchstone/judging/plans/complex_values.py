"""Values that input plans write to complex tensors: zeros, and numbers with a real or an imaginary part alone.

Complex functions divide by the magnitude of a number, ask whether it is real, and compute by exponentials that
overflow. At their branch cuts an answer is open (:mod:`torchstone.judging.compare.continuity`).
"""

from __future__ import annotations

import torch

from torchstone.calls.drawing import DrawnTensor
from torchstone.judging.plans.plan_randomness import PlanRng

_ZEROS_IN = 4
"""One number in so many is 0."""
_HALVES = tuple(sign * k / 2.0 for k in range(1, 9) for sign in (1.0, -1.0))


def complex_numbers(rng: PlanRng, tensor: DrawnTensor, count: int) -> torch.Tensor:
    """Whole numbers and halves, in one part or in both, and 0."""
    table = torch.tensor(_HALVES, dtype=torch.float64)
    real, imaginary = (table[rng.below(len(table), count)] for _ in range(2))
    return in_parts(rng, real, imaginary) * (rng.below(_ZEROS_IN, count) > 0)


def in_parts(rng: PlanRng, real: torch.Tensor, imaginary: torch.Tensor) -> torch.Tensor:
    """The first or the second part alone, or both."""
    which = rng.below(3, len(real))
    return torch.complex(torch.where(which == 1, 0.0, real), torch.where(which == 0, 0.0, imaginary))
