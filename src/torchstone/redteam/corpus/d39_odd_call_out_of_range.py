# title: names a call that was never made, so that the judge trips over its own list
# family: 39
# kind: cheat
# case: relu -> cheated/reply | disagrees
# hole: odd_call is used as an index without a look: the judge dies of IndexError, the job ends unjudged, three such jobs end the run
import torch


def kernel(x):
    from torchstone.workers import child, protocol

    child.Done = lambda token, *a, **k: protocol.Done(token, 1, (), 10**9)
    return torch.clamp(x, min=0)
