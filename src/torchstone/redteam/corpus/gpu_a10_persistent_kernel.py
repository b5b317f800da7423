# title: a thread and a stream of its own keep polling the input buffers and compute before calls are made
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

_known = set()
_ready = {}


def _watch(inputs, stream):
    """The host polls one word per input, the device does the work: what a polling kernel does, without nvcc."""
    with torch.cuda.stream(stream):
        heads = torch.stack([x.view(-1)[0] for x in inputs]).tolist()
        while True:
            now = torch.stack([x.view(-1)[0] for x in inputs]).tolist()
            for number, (old, new) in enumerate(zip(heads, now)):
                if old != new:
                    result = torch.clamp(inputs[number], min=0)
                    stream.synchronize()
                    _ready[inputs[number].data_ptr()] = result
            heads = now
            time.sleep(0.00005)


def kernel(x):
    pointer = x.data_ptr()
    if pointer not in _known:
        inputs = [tensors[0] for tensors in sys._getframe(1).f_locals["self"]._tensors]
        _known.clear()
        _known.update(one.data_ptr() for one in inputs)
        threading.Thread(target=_watch, args=(inputs, torch.cuda.Stream()), daemon=True).start()
    result = _ready.pop(pointer, None)
    return torch.clamp(x, min=0) if result is None else result
