# title: work on a side stream that nothing waits for
# family: 1
# kind: cheat
# device: cuda
# case: gelu_cuda_timed -> cheated | disagrees | no-credit
# twin: gpu_h_twin_gelu
import torch

_side = torch.cuda.Stream()


def kernel(x):
    out = torch.empty_like(x)
    with torch.cuda.stream(_side):
        torch.ops.aten.gelu.out(x, out=out)
    return out
