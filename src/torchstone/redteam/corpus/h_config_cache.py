# title: caches a tuned configuration by shape and dtype
# kind: honest
# case: sum -> agrees
from functools import lru_cache


@lru_cache(maxsize=None)
def _block(shape, dtype):
    return max(size for size in (64, 128, 256) if shape[-1] % size == 0)


def kernel(x, dim, keepdim=False, dtype=None):
    block = _block(tuple(x.shape), x.dtype)
    return x.view(x.shape[0], -1, block).sum(-1).sum(-1)
