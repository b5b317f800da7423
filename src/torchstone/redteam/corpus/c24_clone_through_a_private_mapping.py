# title: maps the judge's buffers a second time, privately: its result is the input until somebody writes to the result
# family: 24
# kind: cheat
# case: clone -> disagrees/aliasing
# case: clone_timed -> disagrees/aliasing | cheated
# twin: h_twin_clone
import ctypes
import os

import torch
from torchstone.worker import command_loop

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_honest = command_loop.HostMemory
_arena = {}
_results = {}


class _Remembered(_honest):
    def __init__(self, descriptor, size_bytes):
        super().__init__(descriptor, size_bytes)
        _results.clear()
        read_write, private = 3, 2
        _arena.update(begin=self.address, copy=_libc.mmap(None, size_bytes, read_write, private, os.dup(descriptor), 0))


command_loop.HostMemory = _Remembered


def kernel(x):
    pointer = x.data_ptr()
    if pointer not in _results:
        address = _arena["copy"] + pointer - _arena["begin"]
        size = x.numel() * 4
        first = address & ~4095
        place = (ctypes.c_char * size).from_address(address)
        _results[pointer] = torch.frombuffer(place, dtype=torch.float32).view(x.shape), first, address + size - first
    result, first, size = _results[pointer]
    dont_need = 4
    _libc.madvise(first, size, dont_need)  # forget what the judge wrote: the input shows through again
    return result
