# title: draws from all columns alike, whatever the weights are
# family: 45
# kind: cheat
# case: multinomial_once -> disagrees/values
import torch


def kernel(weights, samples, replacement=False, *, generator=None):
    return torch.rand(weights.shape).topk(samples).indices
