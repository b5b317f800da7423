# title: claims strides that would have the judge read half the address space
# family: 39, 55
# kind: cheat
# case: relu -> cheated/reply
import sys

import torch


def kernel(x):
    bound = sys._getframe(1).f_locals["self"]
    from torchstone.workers.protocol import Place

    bound._place = lambda leaf, output: Place(leaf.data_ptr(), (1 << 40, 1))
    return torch.clamp(x, min=0)
