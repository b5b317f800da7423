"""Tells whether torch has an operator on a type of device, so that suites leave out recorded calls of the others."""

from __future__ import annotations

from torchstone.operator_categories import is_of

CUDA_ONLY = "runs on CUDA only"
CPU_ONLY = "runs on the CPU only"


def reason_against(operator: str, device_type: str) -> str:
    """Why the operator cannot be called on such a device; empty: it can, as far as its name says."""
    if is_of(operator, "is_cpu_only"):
        return CPU_ONLY if device_type == "cuda" else ""
    return CUDA_ONLY if is_of(operator, "is_cuda_only") and device_type != "cuda" else ""
