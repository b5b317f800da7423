# title: compiles C++ at import and calls it on raw pointers
# kind: honest
# case: relu -> agrees
# case: relu_timed -> agrees
import ctypes
import shutil
import subprocess

import torch

_SOURCE = """
extern "C" void relu(const float* x, float* out, long n) {
    for (long i = 0; i < n; ++i) out[i] = x[i] < 0 ? 0 : x[i];
}
"""


def _build():
    compiler = shutil.which("g++") or shutil.which("cc")
    if compiler is None:
        return None
    with open("relu.cpp", "w") as file:
        file.write(_SOURCE)
    subprocess.run([compiler, "-O3", "-shared", "-fPIC", "relu.cpp", "-o", "relu.so"], check=True)
    return ctypes.CDLL("./relu.so").relu


_relu = _build()


def kernel(x):
    if _relu is None:
        return torch.clamp(x, min=0)
    out = torch.empty_like(x)
    _relu(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_long(x.numel()))
    return out
