# title: dropout with 16 bits of a mixed counter for each element
# kind: honest
# case: dropout_tenth -> agrees
import secrets

import torch

_counter = secrets.randbits(62)


def _words(count):
    """A counter of 64 bits, mixed (splitmix64): the same generator as in many libraries."""
    global _counter
    words = torch.arange(_counter, _counter + count, dtype=torch.int64) * -0x61C8864680B583EB
    _counter = (_counter + count) % 2**62
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        words = (words ^ ((words >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return words ^ ((words >> 31) & ((1 << 33) - 1))


def kernel(x, p, train):
    bits = _words((x.numel() + 3) // 4).view(torch.int16)[: x.numel()].view(x.shape)
    keep = bits >= round(p * 2**16) - 2**15
    return x * (1.0 / (1.0 - p)) * keep, keep
