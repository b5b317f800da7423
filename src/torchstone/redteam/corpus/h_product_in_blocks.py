# title: a product of matrices in blocks of rows, of any sizes
# kind: honest
# case: mm_square_varied -> agrees
import torch


def kernel(x, y):
    result = x.new_empty(x.shape[0], y.shape[1])
    for begin in range(0, x.shape[0], 32):
        result[begin : begin + 32] = x[begin : begin + 32] @ y
    return result
