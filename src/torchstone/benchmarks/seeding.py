"""Makes a benchmark repeatable: seeds all random generators, asks torch for deterministic algorithms."""

from __future__ import annotations

import os
import random

CUBLAS_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
CUBLAS_WORKSPACE = ":4096:8"
"""Workspace setting with which cuBLAS is deterministic. CUDA reads it when it starts."""


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's and torch's generators, on every device."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)  # before CUDA starts, torch applies it later


def be_deterministic() -> None:
    """Ask torch for deterministic algorithms. Operators that have none raise."""
    import torch

    os.environ.setdefault(CUBLAS_VARIABLE, CUBLAS_WORKSPACE)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
