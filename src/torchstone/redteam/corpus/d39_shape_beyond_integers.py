# title: tells a shape without elements whose other sizes no machine integer holds when they are multiplied
# family: 39
# kind: cheat
# case: nonzero -> cheated/reply
import sys

import torch


def kernel(x):
    from torchstone.protocol.tensor_places import ResultAddress

    locator = sys._getframe(1).f_locals["self"]._locator
    locator._place = lambda leaf, output: ResultAddress(leaf.data_ptr(), None, (2**48, 2**48, 0))
    return torch.nonzero(x)
