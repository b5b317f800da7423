# title: a divergence by its formula, and 0 where a probability is
# kind: honest
# case: kl_div -> agrees
import torch


def kernel(x, target):
    return torch.where(target > 0, target * (torch.log(target) - x), 0.0).mean()
