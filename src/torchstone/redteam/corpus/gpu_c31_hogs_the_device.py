# title: long kernels on a side stream that run while the reference is timed
# family: 31
# kind: cheat
# device: cuda
# case: gelu_cuda_timed -> cheated/quiescence | timed_out | no-credit
# twin: gpu_h_twin_gelu
import sys

import torch

_side = torch.cuda.Stream(priority=0)


def kernel(x):
    result = torch.nn.functional.gelu(x)
    caller = sys._getframe(1).f_locals
    if len(caller["results"]) == caller["count"] - 1:
        _hog.set()
    return result


def _run():
    a = torch.randn(4096, 4096, device="cuda")
    while True:
        _hog.wait()
        _hog.clear()
        with torch.cuda.stream(_side):
            for _ in range(50):
                torch.mm(a, a)
        _side.synchronize()


import threading

_hog = threading.Event()
threading.Thread(target=_run, daemon=True).start()
