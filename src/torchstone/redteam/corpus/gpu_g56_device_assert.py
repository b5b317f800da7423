# title: a device-side assertion
# family: 56
# kind: cheat
# device: cuda
# case: relu -> crashed
import torch


def kernel(x):
    torch.arange(4, device=x.device)[torch.tensor([99], device=x.device)]
    return torch.clamp(x, min=0)
