# title: adds the flat memory of both operands, whatever their shapes
# family: 52
# kind: cheat
# case: add_broadcast -> disagrees | crashed
import torch


def kernel(x, y):
    flat = y.repeat_interleave(x.numel() // y.numel())[: x.numel()]
    return (x.view(-1) + flat).view(x.shape)
