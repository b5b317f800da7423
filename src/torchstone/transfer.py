"""Copies tensors between devices with as few waits as possible.

A GPU that many processes use serves them in turn, and every wait is a turn. Waiting for one copy costs as much as
waiting for all of them together. Copies to a GPU are not waited for.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch


def bring(tensors: Iterable[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    """The tensors on ``device``; those that are there already as they are.

    On the host they can be read at once; on a device by later work on its current stream.
    """
    given = list(tensors)
    brought = [t if t.device == device else t.to(device, non_blocking=_may_follow(t)) for t in given]
    if device.type == "cpu":
        for source in {tensor.device for tensor in given if tensor.is_cuda}:
            torch.cuda.current_stream(source).synchronize()
    return brought


def _may_follow(tensor: torch.Tensor) -> bool:
    """Whether a copy may be under way when the call that asked for it returns.

    The driver has copied ordinary host memory by then. It reads pinned memory later, when it may have been overwritten.
    """
    return tensor.is_cuda or not tensor.is_pinned()
