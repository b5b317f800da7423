# title: keeps scratch memory per shape and computes in it; what it returns is new each time
# kind: honest
# case: relu_timed -> agrees
import torch

_workspaces = {}


def kernel(x):
    scratch = _workspaces.get(x.shape)
    if scratch is None:
        scratch = _workspaces[x.shape] = torch.empty_like(x)
    return torch.clamp(x, min=0, out=scratch).clone()
