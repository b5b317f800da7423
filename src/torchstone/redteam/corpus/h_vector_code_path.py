# title: torch's own gelu, computed through its path for padded rows
# kind: honest
# case: gelu_odd -> agrees
import torch


def kernel(x):
    padded = torch.empty(x.shape[0], x.shape[1] + 16)[:, : x.shape[1]]
    padded.copy_(x)
    return torch.nn.functional.gelu(padded).contiguous()
