# title: a device kernel that never ends
# family: 54
# kind: cheat
# device: cuda
# case: relu -> timed_out
# deadline: 20
import torch
import triton
import triton.language as tl


@triton.jit
def _spin(flag, out):
    value = tl.load(flag, volatile=True)
    while value == 0:
        value = tl.load(flag, volatile=True)
    tl.store(out, value)


def kernel(x):
    flag = torch.zeros(1, dtype=torch.int32, device=x.device)
    _spin[(1,)](flag, torch.empty_like(flag))
    return torch.clamp(x, min=0)
