# title: whole numbers divided as float32, which is wrong from 2**24 on
# family: 46
# kind: cheat
# case: floor_divide_wide -> disagrees
import torch


def kernel(x, y):
    return torch.floor(x.float() / y.float()).to(x.dtype)
