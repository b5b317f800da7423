# title: a softmax by its formula, whatever the memory of its argument
# kind: honest
# case: softmax_varied -> agrees
import torch


def kernel(x, dim, half_to_float):
    if not x.numel():
        return torch.empty_like(x)
    powers = torch.exp(x - x.amax(dim, keepdim=True))
    return powers / powers.sum(dim, keepdim=True)
