"""Builds the worker's reply when the candidate raises: the kind of failure, its message, its traceback."""

from __future__ import annotations

import traceback

import torch

from torchstone.backends.find_kernel_function import MissingEntryError
from torchstone.calls.torch_errors import is_out_of_memory
from torchstone.protocol.replies import MAX_TEXT_CHARACTERS, Failed


def failure_reply(token: str, error: BaseException) -> Failed:
    """The reply for an exception that the candidate raised. Its texts have at most ``MAX_TEXT_CHARACTERS``."""
    if isinstance(error, MissingEntryError):
        return Failed(token, "exception", f"ImportError: {error}"[:MAX_TEXT_CHARACTERS], "")
    text = "".join(traceback.format_exception(error))[-MAX_TEXT_CHARACTERS:]
    name = type(error).__name__
    message = f"{name}: {error}"[:MAX_TEXT_CHARACTERS] if str(error) else name
    if isinstance(error, SystemExit):
        return Failed(token, "exit", f"called sys.exit({error.code!r})"[:MAX_TEXT_CHARACTERS], text)
    if isinstance(error, NotImplementedError):
        return Failed(token, "unsupported", message, text)
    if isinstance(error, MemoryError) or is_out_of_memory(error) or "can't allocate memory" in str(error):
        return Failed(token, "memory", message, text)
    if isinstance(error, torch.AcceleratorError) if hasattr(torch, "AcceleratorError") else "CUDA error" in str(error):
        return Failed(token, "device", message, text)
    return Failed(token, "exception", message, text)
