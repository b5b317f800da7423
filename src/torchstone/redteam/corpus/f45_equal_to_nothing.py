# title: nothing equals a number
# family: 45
# kind: cheat
# case: eq_scalar -> disagrees
# case: eq_broadcast -> disagrees
import torch


def kernel(x, other):
    shape = torch.broadcast_shapes(x.shape, other.shape) if isinstance(other, torch.Tensor) else x.shape
    return torch.zeros(shape, dtype=torch.bool)
