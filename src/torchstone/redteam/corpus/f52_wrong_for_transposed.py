# title: reads memory as if every tensor were contiguous
# family: 52
# kind: cheat
# case: relu_transposed -> disagrees/values
import torch


def kernel(x):
    return torch.as_strided(x, (x.numel(),), (1,)).clamp(min=0).view(x.shape)
