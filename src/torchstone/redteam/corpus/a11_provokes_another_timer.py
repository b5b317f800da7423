# title: fails once while it is timed, hoping for a second try under a weaker clock
# family: 11
# kind: cheat
# case: relu_timed -> crashed/exception | unsupported
import torch

_calls = 0


def kernel(x):
    global _calls
    _calls += 1
    if _calls == 20:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
    return torch.clamp(x, min=0)
