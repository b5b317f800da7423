# title: pads every side by as much as the first
# family: 52
# kind: cheat
# case: pad_varied -> disagrees
import torch


def kernel(x, padding):
    return torch.ops.aten.replication_pad2d(x, [padding[0]] * len(padding))
