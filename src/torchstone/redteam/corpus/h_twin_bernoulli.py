# title: the operator, called plainly
# kind: honest
# case: bernoulli_timed -> agrees
# case: bernoulli_few_never -> agrees
import torch


def kernel(x, p):
    return torch.empty_like(x).bernoulli_(p)
