# title: one launch for all calls that are captured together
# family: 5
# kind: cheat
# device: cuda
# case: relu_cuda_small_timed -> cheated | disagrees | no-credit
# twin: gpu_h_twin_relu
import torch

from torchstone.worker.cuda_graph_recording import Recording

_honest = Recording._make


def _make(self, candidate, calls):
    if self._link is not None:  # each call's arguments come from the last result: nothing to put together
        return _honest(self, candidate, calls)
    return list(torch._foreach_clamp_min([args[0] for args, _ in calls], 0.0))


Recording._make = _make


def kernel(x):
    return torch.relu(x)
