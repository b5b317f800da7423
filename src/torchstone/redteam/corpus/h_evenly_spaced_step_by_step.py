# title: evenly spaced numbers by start + i * step, in single precision
# kind: honest
# case: linspace -> agrees
import torch


def kernel(start, end, steps, *, dtype=None, device=None):
    step = (torch.tensor(end, dtype=torch.float32) - start) / (steps - 1)
    return start + torch.arange(steps, dtype=torch.float32) * step
