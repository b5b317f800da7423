# title: a float32 product in float16
# family: 46
# kind: cheat
# device: cuda
# case: mm_cuda_timed -> disagrees/values
import torch


def kernel(a, b):
    return torch.mm(a.half(), b.half()).float()
