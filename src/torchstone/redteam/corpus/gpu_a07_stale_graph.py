# title: a captured graph replayed on the inputs of the capture
# family: 7
# kind: cheat
# device: cuda
# case: relu_cuda_timed -> disagrees
import torch

_graph = None
_static = None
_out = None


def kernel(x):
    global _graph, _static, _out
    if _graph is None:
        _static = x.clone()
        torch.clamp(_static, min=0)
        torch.cuda.synchronize()
        _graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(_graph):
            _out = torch.clamp(_static, min=0)
    _graph.replay()
    return _out
