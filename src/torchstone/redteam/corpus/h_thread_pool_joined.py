# title: a thread pool that finishes before the call returns
# kind: honest
# case: relu_timed -> agrees
from concurrent.futures import ThreadPoolExecutor, wait

import torch

_pool = ThreadPoolExecutor(2)


def kernel(x):
    out = torch.empty_like(x)
    half = x.shape[0] // 2
    wait([_pool.submit(torch.clamp, x[part], min=0, out=out[part]) for part in (slice(None, half), slice(half, None))])
    return out
