"""WHERE IMPLEMENTATIONS COME FROM."""

from torchstone.backends.base import Backend, BackendOptions, ListedBackend, Problem

__all__ = ["Backend", "BackendOptions", "ListedBackend", "Problem"]
