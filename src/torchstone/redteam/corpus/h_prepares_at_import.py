# title: computes tables and collects garbage at import
# kind: honest
# case: lgamma_timed -> agrees
import gc

import torch

_table = torch.linspace(-8, 8, 4096)
gc.collect()
gc.freeze()


def kernel(x):
    return torch.lgamma(x)
