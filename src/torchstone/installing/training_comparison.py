"""Compares two trainings of a model, with and without kernels. Imports no torch.

Two trainings never agree to the last bit. So differences are given as multiples of a measured floor. The floor is how
far the plain training drifts if its weights and inputs are changed by one rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from torchstone.backends import Problem
from torchstone.measuring import Speedup, speedup_of_pairs
from torchstone.tensor_files import FLOAT64_EPSILON, Floats, distance, load_tensors

MOST_TIMES_FLOOR = 10.0
"""Largest multiple of the floor that counts as agreement. A kernel rounds in more places than the copies that are
changed by one rounding, each time by about as much."""
_MOST_COMPARED_STEPS = 1000
"""Most steps from which times and the speedup are computed: the last ones."""


class OperatorUse(msgspec.Struct, frozen=True):
    """One operator that was replaced."""

    operator: str
    kernel: str
    """File of the kernel."""
    calls: int
    refused: int
    """Calls that the kernel refused, so that torch's own operator computed them."""


class Difference(msgspec.Struct, frozen=True):
    """The difference of outputs, gradients or losses with and without kernels, as a share of the largest value."""

    what: str
    worst: str
    """The tensor whose difference is the largest multiple of its floor, or the step with the largest difference."""
    difference: float
    floor: float
    """The same difference for copies of the plain training that are changed by one rounding; at least one rounding."""
    agrees: bool

    @property
    def times_floor(self) -> float:
        return self.difference / self.floor


class Times(msgspec.Struct, frozen=True):
    """Seconds of a training step: forward pass, backward pass and optimizer."""

    plain_seconds: float
    """Median over the steps after warm-up."""
    kernels_seconds: float
    speedup: Speedup | None
    """Plain time over time with kernels, from pairs of steps; None: there are too few steps."""


class ModelComparison(msgspec.Struct, frozen=True):
    """Everything that ``torchstone model`` reports."""

    script: str
    kernels_dir: str
    device: str
    steps: int
    """Steps that both trainings have done."""
    parameters: int
    operators: tuple[OperatorUse, ...]
    problems: tuple[Problem, ...]
    """Kernels of the folder that could not be used, with the reason."""
    differences: tuple[Difference, ...]
    plain_losses: tuple[float, ...]
    kernels_losses: tuple[float, ...]
    times: Times | None
    failure: str = ""
    """Why the training with kernels stopped, or why its result says nothing about them; empty: neither."""

    @property
    def agrees(self) -> bool:
        return not self.failure and all(item.agrees for item in self.differences)


def compare_losses(
    plain: Sequence[float], kernels: Sequence[float], copies: Sequence[Sequence[float]], epsilon: float
) -> Difference:
    """The largest difference between the loss curves with and without kernels."""
    ours, theirs = np.asarray(kernels), np.asarray(plain)
    apart, position = distance(ours, theirs)
    measured = max((distance(np.asarray(copy), theirs)[0] for copy in copies), default=0.0)
    floor = max(measured, epsilon, FLOAT64_EPSILON)
    return _difference(f"loss, {len(plain)} steps", f"step {position + 1}", apart, floor)


def compare_files(what: str, plain: Path, kernels: Path, copies: Sequence[Path]) -> Difference:
    """Compare the tensors of two files, each with its own floor. Returns the one with the largest multiple of it."""
    theirs, ours = load_tensors(plain), load_tensors(kernels)
    noisy = [load_tensors(path) for path in copies]
    found = [_compare_tensor(what, name, ours, theirs, noisy) for name in sorted({*theirs, *ours})]
    return max(found, key=lambda item: item.times_floor, default=Difference(what, "none", 0.0, FLOAT64_EPSILON, True))


def times_of(plain: Sequence[float], kernels: Sequence[float]) -> Times | None:
    """Medians and speedup, from the seconds of all steps in order. None if no step is left after warm-up."""
    warm_up = 0 if len(plain) < 2 else 1 if len(plain) < 8 else 3
    ours, theirs = kernels[warm_up:][-_MOST_COMPARED_STEPS:], plain[warm_up:][-_MOST_COMPARED_STEPS:]
    if not ours:
        return None
    return Times(float(np.median(theirs)), float(np.median(ours)), speedup_of_pairs(ours, theirs))


def _compare_tensor(
    what: str,
    name: str,
    ours: dict[str, Floats],
    theirs: dict[str, Floats],
    noisy: Sequence[dict[str, Floats]],
) -> Difference:
    shown, _, epsilon = name.rpartition("|")
    if name not in ours or name not in theirs or ours[name].shape != theirs[name].shape:
        return _difference(what, f"{shown} (another type or size, or not there)", math.inf, FLOAT64_EPSILON)
    measured = max((distance(copy[name], theirs[name])[0] for copy in noisy if name in copy), default=0.0)
    floor = max(measured, float(epsilon), FLOAT64_EPSILON)
    return _difference(what, shown, distance(ours[name], theirs[name])[0], floor)


def _difference(what: str, worst: str, apart: float, floor: float) -> Difference:
    return Difference(what, worst, apart, floor, apart <= MOST_TIMES_FLOOR * floor)
