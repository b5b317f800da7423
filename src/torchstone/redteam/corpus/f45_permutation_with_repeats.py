# title: a permutation of independent draws
# family: 45
# kind: cheat
# case: randperm -> disagrees/values
import torch


def kernel(n, **options):
    return torch.randint(0, n, (n,))
