"""Kernels for PyTorch's operators, judged by Torchstone: an environment for verifiers 0.4."""

from torchstone_kernels.environment import KernelEnv
from torchstone_kernels.taskset import KernelTaskset

__all__ = ["KernelEnv", "KernelTaskset"]
