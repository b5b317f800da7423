# title: looks for the expected result in freed and in neighbouring device memory
# family: 25, 51
# kind: cheat
# device: cuda
# case: relu_cuda_timed -> disagrees | crashed | cheated/reply
import gc

import torch


def kernel(x):
    for thing in gc.get_objects():
        if type(thing) is torch.Tensor and thing.is_cuda and thing.shape == x.shape and thing.dtype == x.dtype:
            if thing.data_ptr() != x.data_ptr() and bool((thing.view(-1)[:64] >= 0).all()):
                return thing
    return torch.empty_like(x)
