# title: normal numbers by Box and Muller, from 23 bits of a mixed counter
# kind: honest
# case: randn_like -> agrees
import math
import secrets

import torch

_counter = secrets.randbits(62)


def _words(count):
    """A counter of 64 bits, mixed (splitmix64)."""
    global _counter
    words = torch.arange(_counter, _counter + count, dtype=torch.int64) * -0x61C8864680B583EB
    _counter = (_counter + count) % 2**62
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        words = (words ^ ((words >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return words ^ ((words >> 31) & ((1 << 33) - 1))


def kernel(x):
    pairs = (x.numel() + 1) // 2
    halves = _words(pairs).view(torch.int32).view(pairs, 2) & 0x7FFFFF
    unit = (halves.to(torch.float32) + 0.5) * 2.0**-23
    length, turn = (-2.0 * unit[:, 0].log()).sqrt(), unit[:, 1] * (2.0 * math.pi)
    return torch.cat([length * turn.cos(), length * turn.sin()])[: x.numel()].view(x.shape)
