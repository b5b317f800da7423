"""Saves tensors as files of numpy arrays and compares the arrays: two processes save, a third compares.

``torchstone model`` and the harness use it. The comparing process imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

MOST_KEPT = 1 << 20
"""Most elements of a tensor that are saved and compared. Of a larger tensor, evenly spaced elements are saved."""
FLOAT64_EPSILON = float(np.finfo(np.float64).eps)

Floats = NDArray[np.float64]


def save_tensors(path: Path, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Save tensors as float64. Each array's name is the tensor's, a bar, and the epsilon of the tensor's dtype."""
    import torch

    arrays = {}
    for name, tensor in tensors:
        flat = _real(tensor.detach()).reshape(-1)
        evenly_spaced = flat[:: -(-flat.numel() // MOST_KEPT)] if flat.numel() > MOST_KEPT else flat
        arrays[f"{name}|{epsilon(tensor.dtype)!r}"] = evenly_spaced.to(device="cpu", dtype=torch.float64).numpy()
    np.savez(path, **arrays)  # type: ignore[arg-type]  # an array may have any name but its parameters'


def load_tensors(path: Path) -> dict[str, Floats]:
    """The saved arrays by name: the tensor's name, a bar, and the epsilon of its dtype."""
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def difference(ours: Floats, theirs: Floats) -> Floats:
    """Absolute difference of each element. It is 0 for equal infinities and two NaN, infinite for a single NaN."""
    with np.errstate(invalid="ignore"):
        apart = np.abs(ours - theirs)
    apart[(ours == theirs) | (np.isnan(ours) & np.isnan(theirs))] = 0.0
    apart[np.isnan(apart)] = np.inf
    return apart


def largest(values: Floats) -> float:
    """The largest finite magnitude; 1 if there is none above zero."""
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if finite.size and finite.max() > 0 else 1.0


def distance(ours: Floats, theirs: Floats) -> tuple[float, int]:
    """The largest difference as a share of the largest finite value of `theirs`, and its flat index."""
    if theirs.size == 0:
        return 0.0, 0
    apart = difference(ours, theirs)
    position = int(np.argmax(apart))
    return float(apart[position]) / largest(theirs), position


def epsilon(dtype: torch.dtype) -> float:
    """Machine epsilon of the dtype; 0 for integers and booleans."""
    import torch

    return torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else 0.0


def _real(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    dense = tensor if tensor.layout == torch.strided else tensor.to_dense()
    return torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense
