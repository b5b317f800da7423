# title: whole numbers of 32 bits divided as float64, which holds them all
# kind: honest
# case: floor_divide_wide -> agrees
import torch


def kernel(x, y):
    return torch.floor(x.double() / y.double()).to(x.dtype)
