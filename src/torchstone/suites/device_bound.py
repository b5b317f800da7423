"""Operators that torch has on one type of device only, by their names: recordings name them wherever they are read."""

from __future__ import annotations

CUDA_ONLY = "runs on CUDA only"
CPU_ONLY = "runs on the CPU only"
_CUDA_MARKS = ("cudnn", "_cuda")
_CUDA_NAMES = ("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention")
_CPU_MARKS = ("mkldnn", "_for_cpu")


def reason_against(operator: str, device_type: str) -> str:
    """Why the operator cannot be called on such a device; empty: it can, as far as its name says."""
    base = operator.split(".")[1]
    if any(mark in base for mark in _CPU_MARKS):
        return CPU_ONLY if device_type == "cuda" else ""
    on_cuda_only = any(mark in base for mark in _CUDA_MARKS) or base.removesuffix("_backward") in _CUDA_NAMES
    return CUDA_ONLY if on_cuda_only and device_type != "cuda" else ""
