# title: takes a negative index for 0, where it counts from the end
# family: 52
# kind: cheat
# case: index -> disagrees
import torch


def kernel(x, indices):
    return torch.ops.aten.index.Tensor(x, [i.clamp_min(0) if i is not None and not i.dtype == torch.bool else i for i in indices])
