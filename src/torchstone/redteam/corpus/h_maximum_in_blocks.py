# title: a maximum over blocks of 64 and what is left over
# kind: honest
# case: max -> agrees
import torch


def kernel(x):
    flat = x.reshape(-1)
    whole = flat.numel() // 64 * 64
    return torch.cat([flat[:whole].view(-1, 64).amax(0), flat[whole:]]).amax()
