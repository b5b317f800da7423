"""Kernels installed on CUDA: for that device only, with gradients, through Triton."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional

import torchstone
from torchstone.errors import KernelError
from torchstone.installing.model import ModelRequest, compare

pytestmark = pytest.mark.gpu

EXAMPLES = Path(__file__).parents[2] / "examples" / "training_kernels"
TRITON_RELU = """
import torch
import triton
import triton.language as tl


@triton.jit
def _relu(x, y, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    values = tl.load(x + places, mask=inside)
    tl.store(y + places, tl.maximum(values, 0.0), mask=inside)


def relu_kernel_impl(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    _relu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""


def folder_of(tmp_path: Path, name: str, text: str) -> Path:
    (tmp_path / name).mkdir()
    (tmp_path / name / f"{name}.py").write_text(text)
    return tmp_path


def test_a_triton_kernel_serves_cuda_alone_and_trains(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "relu", TRITON_RELU)
    x = torch.randn(1000, device="cuda", requires_grad=True)
    with torchstone.enable(folder, device="cuda") as installation:
        y = torch.relu(x)
        y.sum().backward()
        torch.relu(x.detach().cpu())
    assert installation.calls == {"aten.relu.default": 1}
    assert torch.equal(y, torch.relu(x))
    assert x.grad is not None
    assert torch.equal(x.grad, (x > 0).float())


def test_an_error_in_the_backward_pass_comes_through_the_devices_thread(tmp_path: Path) -> None:
    text = "def gelu_backward_kernel_impl(*args, **kwargs):\n    raise ValueError('no idea')\n"
    folder = folder_of(tmp_path, "gelu_backward", text)
    x = torch.ones(3, device="cuda", requires_grad=True)
    with torchstone.enable(folder, device="cuda"), pytest.raises(KernelError, match="gelu_backward"):
        functional.gelu(x).sum().backward()


def test_the_original_may_call_its_operator_again(tmp_path: Path) -> None:
    text = (
        "from torchstone.installing import original\n\n\n"
        "def copy__kernel_impl(to, source, non_blocking=False):\n"
        "    return original('aten.copy_.default')(to, source, non_blocking)\n"
    )
    source = torch.randn(70, 70, dtype=torch.float64)
    with torchstone.enable(folder_of(tmp_path, "copy_", text), device="cuda"):
        copied = torch.empty(70, 70, device="cuda").t().copy_(source)
    assert torch.equal(copied.cpu(), source.float())


def test_the_training_kernels_agree_on_cuda() -> None:
    request = ModelRequest(EXAMPLES / "transformer.py", EXAMPLES, "cuda", steps=30)
    found = compare(request, lambda done, steps: None)
    assert found.agrees, (found.failure, found.differences)
