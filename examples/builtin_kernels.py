"""Torchstone's own kernels as functions with gradients: in Triton where it can run, else PyTorch's operators.

On a machine without a GPU it says what is missing. `TRITON_INTERPRET=1 python examples/builtin_kernels.py` runs the
Triton kernels on the CPU, in Triton's interpreter.
"""

import os

import torch

from torchstone import kernels


def main() -> None:
    missing = kernels.why_unavailable("triton")
    impl = "triton" if missing is None else "torch"
    print(f"impl='{impl}'" + (f": {missing}" if missing else ""))
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    device = "cuda" if impl == "triton" and not interpreted else "cpu"

    x = torch.randn(8, 100, device=device, requires_grad=True)
    weight, bias = torch.ones(100, device=device), torch.zeros(100, device=device)
    hidden = kernels.layer_norm_gelu(x, weight, bias, impl=impl)  # one kernel instead of two
    loss = kernels.cross_entropy(hidden, torch.arange(8, device=device), label_smoothing=0.1, impl=impl)
    loss.backward()
    print(f"loss {loss.item():.3f}, gradient of shape {tuple(x.grad.shape)}")
    print(f"{len(kernels.operators('triton'))} operators have a Triton kernel")


if __name__ == "__main__":
    main()
