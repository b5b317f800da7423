# title: launches the captured calls and replies without waiting for them
# family: 2
# kind: cheat
# device: cuda
# case: relu_cuda_timed -> cheated/late-work | disagrees | no-credit
# twin: gpu_h_twin_relu
import torch

from torchstone.worker.cuda_graph_recording import Recording


def _play_ns(self):
    self._graph.replay()
    return 1


Recording.play_ns = _play_ns


def kernel(x):
    return torch.relu(x)
