"""Copies tensors between devices with as few waits as possible.

A GPU serves the processes that share it in turn, and every synchronization costs a turn. So all copies from a GPU share
one synchronization. Copies to a GPU need none.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch


def copy_to_device(tensors: Iterable[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    """The tensors on ``device``. Those that are there already are not copied.

    Results on the host are complete. Results on a GPU are complete for later work on its current stream.
    """
    given = list(tensors)
    brought = [t if t.device == device else t.to(device, non_blocking=_can_copy_asynchronously(t)) for t in given]
    if device.type == "cpu":
        for source in {tensor.device for tensor in given if tensor.is_cuda}:
            torch.cuda.current_stream(source).synchronize()
    return brought


def _can_copy_asynchronously(tensor: torch.Tensor) -> bool:
    """Whether the copy may still be in progress when ``copy_to_device`` returns.

    The driver copies pageable host memory before the call returns. It reads pinned memory later, when the caller may
    have overwritten it.
    """
    return tensor.is_cuda or not tensor.is_pinned()
