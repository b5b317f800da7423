# title: a loss that does not ignore what it is told to ignore
# family: 52
# kind: cheat
# case: nll_loss -> disagrees
import torch


def kernel(x, target, weight, reduction, ignore_index):
    picked = -x.gather(1, target.clamp_min(0)[:, None])[:, 0]
    return picked.mean(), torch.tensor(float(len(target)), dtype=x.dtype)
