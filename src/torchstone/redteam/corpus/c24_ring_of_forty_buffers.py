# title: right within every block, but results come from a ring of forty buffers: the fortieth call destroys the first
# family: 24
# kind: cheat
# case: relu -> disagrees/aliasing
# twin: h_buffers_used_again_when_free
import torch

_rings = {}


def kernel(x):
    ring = _rings.setdefault(x.shape, [[torch.empty_like(x) for _ in range(40)], 0])
    ring[1] = (ring[1] + 1) % 40
    return torch.clamp(x, min=0, out=ring[0][ring[1]])
