"""Gradients in the loop: the model is asked for them, told which gradient is wrong, and judged by them."""

from __future__ import annotations

from pathlib import Path

from generation.test_run import Watcher
from torchstone.generation import GenerationRequest, generate, records_of
from torchstone.generation.providers import ModelRequest, ScriptedProvider
from torchstone.schema import is_gradient
from torchstone.schema.generation import Judged

DETACHED = "import torch\n\n\ndef relu_kernel_impl(self):\n    return torch.clamp(self.detach(), min=0)\n"
"""Right results, no gradient."""
DIFFERENTIABLE = """import torch


class _Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.clamp(x, min=0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return torch.where({condition}, torch.zeros_like(grad), grad)


def relu_kernel_impl(self):
    return _Relu.apply(self)
"""
KERNELS = (DETACHED, DIFFERENTIABLE.format(condition="x <= -0.5"), DIFFERENTIABLE.format(condition="x <= 0"))


def test_a_model_is_asked_for_gradients_until_they_are_right(tmp_path: Path) -> None:
    def script(request: ModelRequest) -> str:
        return f"```python\n{KERNELS[request.number - 1]}```"

    provider = ScriptedProvider(script)
    request = GenerationRequest(
        operators=("relu",), dtypes=("float32",), largest=1, mode="bwd", dsl="pytorch", device="cpu", max_attempts=3,
        output_dir=tmp_path, run_id="mine",
    )  # fmt: skip
    result = generate(request, Watcher(), provider=provider)
    outcomes = [attempt.outcome for attempt in result.attempts]
    assert all(isinstance(outcome, Judged) for outcome in outcomes), outcomes
    assert [attempt.right for attempt in result.attempts] == [False, False, True]
    for outcome in outcomes:
        assert isinstance(outcome, Judged)
        assert all(is_gradient(record.case.operator) for record in records_of(result.folder, outcome.records_file))
    prompt, *_, feedback = (message.text for message in provider.requests[2].messages)
    assert "computes PyTorch's operator aten.relu.default, and its gradient" in prompt
    assert "# Gradient\n- Gradients are asked for" in prompt
    assert "class _Softshrink(torch.autograd.Function)" in prompt  # the worked example is differentiable
    assert "gradient of aten.relu.default" in feedback
    assert "gradient of self: " in feedback
    assert "--mode bwd --backend directory" in (result.folder / "README.md").read_text()
