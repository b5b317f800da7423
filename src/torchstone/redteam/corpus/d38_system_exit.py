# title: raises SystemExit(0) in the middle of measuring
# family: 38
# kind: cheat
# case: relu_timed -> crashed/exit
import torch

_calls = 0


def kernel(x):
    global _calls
    _calls += 1
    if _calls > 12:
        raise SystemExit(0)
    return torch.clamp(x, min=0)
