"""Backends: where kernels come from, such as folders, models that write kernels, or PyTorch itself."""

from torchstone.backends.base import Backend, BackendOptions, HeldKernel, ListedBackend, Problem
from torchstone.backends.folder_names import folder_name, operator_name

__all__ = ["Backend", "BackendOptions", "HeldKernel", "ListedBackend", "Problem", "folder_name", "operator_name"]
