# title: returns a transposed view of its own result, and a slice of a padded one: new memory all the same
# kind: honest
# case: relu -> agrees
# case: relu_transposed -> agrees
import torch

_calls = 0


def kernel(x):
    global _calls
    _calls += 1
    if _calls % 2:
        return torch.clamp(x.t(), min=0).t()
    padded = x.new_zeros(x.shape[0], x.shape[1] + 7)
    torch.clamp(x, min=0, out=padded[:, : x.shape[1]])
    return padded[:, : x.shape[1]]
