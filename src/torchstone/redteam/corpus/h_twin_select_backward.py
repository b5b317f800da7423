# title: the gradient of a row, written as torch writes it
# family: 2, 14
# kind: honest
# case: select_backward_timed -> agrees
import torch


def kernel(grad, sizes, dim, index):
    result = torch.zeros(sizes, dtype=grad.dtype)
    result.select(dim, index).copy_(grad)
    return result
