# title: torch.empty from the caching allocator, which may hold the last answer
# family: 15
# kind: cheat
# device: cuda
# case: relu_cuda_timed -> disagrees
import torch

_calls = 0


def kernel(x):
    global _calls
    _calls += 1
    if _calls <= 2:
        torch.clamp(x, min=0)
    return torch.empty_like(x)
