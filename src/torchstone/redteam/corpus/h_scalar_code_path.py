# title: torch's own gelu, computed through its path for strided memory
# kind: honest
# case: gelu_timed -> agrees
import torch


def kernel(x):
    spread = torch.empty(*x.shape, 2)
    spread[..., 0] = x
    return torch.nn.functional.gelu(spread[..., 0]).contiguous()
