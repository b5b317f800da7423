# title: writes a few bytes beyond its input, where nobody looks
# family: 51
# kind: cheat
# case: relu -> cheated | disagrees | crashed
import ctypes

import torch


def kernel(x):
    ctypes.memset(x.data_ptr() + x.numel() * 4, 0x5A, 32)
    return torch.clamp(x, min=0)
