# title: calls return unfilled buffers, the last call of a block computes all of them in one batch
# family: 5
# kind: cheat
# case: mm_small_timed -> cheated | no-credit
# twin: h_twin_mm
# hole: a block shows the inputs of all its calls at once, and results are read after the last: n products cost one bmm
import ctypes
import sys

import torch

_plan = {}
_count = 0


def kernel(a, b):
    global _count
    pointer = a.data_ptr()
    if pointer not in _plan:
        _study(sys._getframe(1).f_locals["self"])
    index, slot, left, right, out = _plan[pointer]
    if index == 0:
        _count = sys._getframe(1).f_locals["count"]
    if index == _count - 1:
        torch.bmm(left[:_count], right[:_count], out=out[:_count])
    return slot


def _study(bound):
    """Calls lie at a fixed pitch in one mapping: a strided tensor over it spans every call of a block."""
    tensors, slots = bound._tensors, [one[0] for one in bound._slots]
    base = tensors[0][0].data_ptr()
    pitch = tensors[1][0].data_ptr() - base if len(tensors) > 1 else 1 << 12
    flat = torch.frombuffer((ctypes.c_char * (pitch * len(tensors))).from_address(base), dtype=torch.float32)

    def spanning(one):
        return flat.as_strided((len(tensors), *one.shape), (pitch // 4, *one.stride()), (one.data_ptr() - base) // 4)

    views = spanning(tensors[0][0]), spanning(tensors[0][1]), spanning(slots[0])
    _plan.clear()
    for index, (arguments, slot) in enumerate(zip(tensors, slots)):
        _plan[arguments[0].data_ptr()] = index, slot, *views
