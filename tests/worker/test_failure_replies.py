"""What a worker answers when the candidate raises."""

from __future__ import annotations

import pytest
import torch

from torchstone.worker.failure_replies import failure_reply


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), "memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), "memory"),
        (torch.AcceleratorError("CUDA error: out of memory"), "memory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "memory"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"), "memory"),
        (torch.AcceleratorError("CUDA error: an illegal memory access was encountered"), "device"),
        (RuntimeError("sizes do not match"), "exception"),
        (NotImplementedError("no complex numbers"), "unsupported"),
        (SystemExit(2), "exit"),
    ],
)
def test_the_kind_of_a_failure(error: BaseException, kind: str) -> None:
    assert failure_reply("token", error).kind == kind
