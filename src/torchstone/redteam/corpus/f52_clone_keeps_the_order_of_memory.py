# title: clone ignores the memory format that is asked for: right values, and the view that comes next raises
# family: 52
# kind: cheat
# case: clone_contiguous -> disagrees/structure
import torch


def kernel(x, *, memory_format=None):
    return torch.clone(x, memory_format=torch.preserve_format)
