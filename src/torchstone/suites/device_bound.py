"""Operators that torch has on one type of device only, by their names: recordings name them wherever they are read."""

from __future__ import annotations

from torchstone.operator_names import is_of

CUDA_ONLY = "runs on CUDA only"
CPU_ONLY = "runs on the CPU only"


def reason_against(operator: str, device_type: str) -> str:
    """Why the operator cannot be called on such a device; empty: it can, as far as its name says."""
    if is_of(operator, "is_cpu_only"):
        return CPU_ONLY if device_type == "cuda" else ""
    return CUDA_ONLY if is_of(operator, "is_cuda_only") and device_type != "cuda" else ""
