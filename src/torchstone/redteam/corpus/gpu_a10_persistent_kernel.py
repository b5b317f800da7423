# title: a kernel launched once keeps polling the input buffers and computes before calls are made
# family: 10, 58
# kind: cheat
# device: cuda
# case: relu_cuda_timed -> cheated/quiescence | timed_out | disagrees | no-credit
# twin: gpu_h_twin_relu
# deadline: 30
import sys
import threading
import time

import torch

_slots = {}
_ready = {}


def _watch(pairs, stream):
    """The host polls one word per input, the device does the work: what a polling kernel does, without nvcc."""
    heads = torch.stack([x.view(-1)[0] for x, _ in pairs])
    with torch.cuda.stream(stream):
        while True:
            now = torch.stack([x.view(-1)[0] for x, _ in pairs])
            changed = (now != heads).nonzero().flatten().tolist()
            for number in changed:
                x, slot = pairs[number]
                torch.clamp(x, min=0, out=slot)
                _ready[x.data_ptr()] = True
            heads = now
            if not changed:
                time.sleep(0.00005)


def kernel(x):
    pointer = x.data_ptr()
    if pointer not in _slots:
        bound = sys._getframe(1).f_locals["self"]
        _slots.clear()
        pairs = [(tensors[0], slots[0]) for tensors, slots in zip(bound._tensors, bound._slots)]
        _slots.update({one.data_ptr(): slot for one, slot in pairs})
        threading.Thread(target=_watch, args=(pairs, torch.cuda.Stream()), daemon=True).start()
    slot = _slots[pointer]
    if not _ready.pop(pointer, False):
        torch.clamp(x, min=0, out=slot)
    return slot
