# title: a captured graph replayed after the inputs were copied into it
# kind: honest
# device: cuda
# case: relu_cuda_timed -> agrees
import torch

_graphs = {}


def kernel(x):
    if x.shape not in _graphs:
        static = x.clone()
        torch.clamp(static, min=0)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = torch.clamp(static, min=0)
        _graphs[x.shape] = graph, static, out
    graph, static, out = _graphs[x.shape]
    static.copy_(x)
    graph.replay()
    return out.clone()
