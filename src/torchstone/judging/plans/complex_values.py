"""Complex numbers for input plans (special values written into test inputs): 0, real, imaginary and mixed numbers.

Complex functions divide by the magnitude of a number, test whether it is real, and compute exponentials that overflow.
At branch cuts several results are accepted (:mod:`torchstone.judging.compare.continuity`).
"""

from __future__ import annotations

import torch

from torchstone.calls.draw_arguments import DrawnTensor
from torchstone.judging.plans.plan_randomness import PlanRng

_ZERO_EVERY = 4
"""One number in this many is 0, on average."""
_HALVES = tuple(sign * k / 2.0 for k in range(1, 9) for sign in (1.0, -1.0))


def complex_numbers(rng: PlanRng, tensor: DrawnTensor, count: int) -> torch.Tensor:
    """Integers and halves up to 4, in the real part, the imaginary part or both; about one number in four is 0."""
    table = torch.tensor(_HALVES, dtype=torch.float64)
    real, imaginary = (table[rng.below(len(table), count)] for _ in range(2))
    return in_parts(rng, real, imaginary) * (rng.below(_ZERO_EVERY, count) > 0)


def in_parts(rng: PlanRng, real: torch.Tensor, imaginary: torch.Tensor) -> torch.Tensor:
    """Complex numbers with only this real part, only this imaginary part, or both, at random."""
    which = rng.below(3, len(real))
    return torch.complex(torch.where(which == 1, 0.0, real), torch.where(which == 0, 0.0, imaginary))
