# title: indices that come twice, where each may come once
# family: 45
# kind: cheat
# case: multinomial_once -> disagrees/values
# case: multinomial_most_once -> disagrees/values
# case: multinomial_few_once -> disagrees/values
import torch


def kernel(weights, samples, replacement=False, *, generator=None):
    return torch.multinomial(weights, samples, True)
