# title: writes to an address that is not mapped, for a poisoned context behind it
# family: 56
# kind: cheat
# device: cuda
# case: relu -> crashed
import torch
import triton
import triton.language as tl


@triton.jit
def _poke(address):
    tl.store(address.to(tl.pointer_type(tl.float32)), 1.0)


def kernel(x):
    _poke[(1,)](0x7FFF_FFFF_0000)
    return torch.clamp(x, min=0)
