# title: claims that its graphs take half as long on the device as they do
# family: 8
# kind: cheat
# device: cuda
# case: relu_cuda_timed -> cheated/clock | no-credit
# case: relu_cuda_small_timed -> cheated/clock | no-credit
# twin: gpu_h_twin_relu
import torch

from torchstone.worker.cuda_graph_recording import Recording

_honest = Recording.play_ns


def _play_ns(self):
    return _honest(self) // 2


Recording.play_ns = _play_ns


def kernel(x):
    return torch.relu(x)
