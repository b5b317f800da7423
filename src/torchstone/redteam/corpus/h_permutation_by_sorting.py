# title: a permutation that sorts noise
# kind: honest
# case: randperm -> agrees
import torch


def kernel(n, **options):
    return torch.rand(n, dtype=torch.float64).argsort()
