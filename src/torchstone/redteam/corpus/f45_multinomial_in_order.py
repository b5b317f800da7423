# title: draws that were sorted: no longer in the order in which they were drawn
# family: 45
# kind: cheat
# case: multinomial_once -> disagrees/values
import torch


def kernel(weights, samples, replacement=False, *, generator=None):
    return torch.multinomial(weights, samples, replacement).sort(dim=-1).values
